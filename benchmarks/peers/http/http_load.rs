//! HTTP/1.1 load over keep-alive connections: one thread, one epoll, no dependency (`rustc -O http_load.rs`).
//!
//! Every connection has one request in flight. Without `--rate` it sends the next when its answer is complete. With
//! `--rate N` request i is due i/N seconds after the start whatever became of those before it: it waits where every
//! connection is busy, and its latency counts from the moment it was due, so that a pause of the server is seen by
//! every request it would have met. With `--step S --offsets N` the text `{offset}` in the head is 0, S, 2 S ... in N
//! requests that take turns. Any answer that is not 200 ends the run: a rate of refusals is no rate. Prints one JSON
//! line.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const EPOLL_CTL_ADD: i32 = 1;
const EPOLLIN: u32 = 1;

#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
#[derive(Clone, Copy)]
struct EpollEvent {
    events: u32,
    data: u64,
}

extern "C" {
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(epoll: i32, operation: i32, file: i32, event: *mut EpollEvent) -> i32;
    fn epoll_pwait2(
        epoll: i32,
        events: *mut EpollEvent,
        size: i32,
        timeout: *const Timespec,
        signals: *const u8,
    ) -> i32;
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Without an answer for this long the run fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The ready connections; none when the time was over.
fn wait(epoll: i32, events: &mut [EpollEvent], timeout: Duration) -> usize {
    let timeout = Timespec {
        seconds: timeout.as_secs() as i64,
        nanoseconds: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: `events` has room for as many events as is said; both pointers outlive the call.
    let ready = unsafe {
        epoll_pwait2(
            epoll,
            events.as_mut_ptr(),
            events.len() as i32,
            &timeout,
            std::ptr::null(),
        )
    };
    ready.max(0) as usize
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    begun: Instant,
}

impl Connection {
    fn open(address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Connection {
            stream,
            input: vec![0; 256 << 10],
            filled: 0,
            begun: Instant::now(),
        }
    }

    /// Writes one whole request; its latency counts from `begun`. The socket is blocking, so a large body waits for
    /// the server to take it.
    fn send(&mut self, request: &[u8], begun: Instant) {
        self.begun = begun;
        self.filled = 0;
        self.stream.write_all(request).expect("write");
    }

    /// Reads what is there; tells whether the answer is complete.
    fn receive(&mut self) -> bool {
        if self.filled == self.input.len() {
            self.input.resize(self.filled * 2, 0);
        }
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => fail("the server closed a connection", &self.input[..self.filled]),
            Ok(size) => self.filled += size,
            Err(error) if error.kind() == ErrorKind::Interrupted => return false,
            Err(error) => fail(&error.to_string(), &[]),
        }
        let input = &self.input[..self.filled];
        let Some(head) = find(input, b"\r\n\r\n") else {
            return false;
        };
        let length = content_length(&input[..head]);
        if self.filled < head + 4 + length {
            return false;
        }
        if !input.starts_with(b"HTTP/1.1 200") {
            fail("an answer is not 200", input);
        }
        true
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

fn content_length(head: &[u8]) -> usize {
    for line in head.split(|byte| *byte == b'\n') {
        if line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:") {
            let digits = std::str::from_utf8(&line[15..]).expect("a header in UTF-8");
            return digits.trim().parse().expect("a content length");
        }
    }
    fail("an answer without Content-Length", head)
}

fn fail(reason: &str, context: &[u8]) -> ! {
    eprintln!(
        "{reason}\n{}",
        String::from_utf8_lossy(&context[..context.len().min(2000)])
    );
    std::process::exit(1);
}

/// Sends `count` requests, each when a connection is free, and returns each one's latency in microseconds.
fn run(connections: &mut [Connection], epoll: i32, requests: &[Vec<u8>], count: usize) -> Vec<u64> {
    let mut latencies = Vec::with_capacity(count);
    let mut sent = 0;
    let first = count.min(connections.len());
    for connection in &mut connections[..first] {
        connection.send(&requests[sent % requests.len()], Instant::now());
        sent += 1;
    }
    let mut events = vec![EpollEvent { events: 0, data: 0 }; connections.len()];
    while latencies.len() < count {
        let ready = wait(epoll, &mut events, TIMEOUT);
        if ready == 0 {
            fail("no answer in 60 s", &[]);
        }
        for event in &events[..ready] {
            let connection = &mut connections[event.data as usize];
            if connection.receive() {
                latencies.push(connection.begun.elapsed().as_micros() as u64);
                if sent < count {
                    connection.send(&requests[sent % requests.len()], Instant::now());
                    sent += 1;
                }
            }
        }
    }
    latencies
}

/// As `run`, but request i is due i / `rate` seconds after the start, and its latency counts from then.
fn run_at(
    connections: &mut [Connection],
    epoll: i32,
    requests: &[Vec<u8>],
    count: usize,
    rate: f64,
) -> Vec<u64> {
    let mut latencies = Vec::with_capacity(count);
    let mut idle: Vec<usize> = (0..connections.len()).collect();
    let mut events = vec![EpollEvent { events: 0, data: 0 }; connections.len()];
    let mut sent = 0;
    let started = Instant::now();
    let due = |index: usize| started + Duration::from_secs_f64(index as f64 / rate);
    let mut answered = started;
    while latencies.len() < count {
        while sent < count && due(sent) <= Instant::now() {
            let Some(free) = idle.pop() else { break };
            connections[free].send(&requests[sent % requests.len()], due(sent));
            sent += 1;
        }
        let next = if sent < count && !idle.is_empty() {
            due(sent).saturating_duration_since(Instant::now())
        } else {
            TIMEOUT
        };
        let ready = wait(epoll, &mut events, next);
        if ready == 0 && idle.len() < connections.len() && answered.elapsed() > TIMEOUT {
            fail("no answer in 60 s", &[]);
        }
        for event in &events[..ready] {
            let connection = &mut connections[event.data as usize];
            if connection.receive() {
                answered = Instant::now();
                latencies.push(connection.begun.elapsed().as_micros() as u64);
                idle.push(event.data as usize);
            }
        }
    }
    latencies
}

/// The request with an offset in its place.
fn at_offset(request: &[u8], offset: usize) -> Vec<u8> {
    let text = String::from_utf8(request.to_vec()).expect("a request in UTF-8");
    text.replace("{offset}", &offset.to_string()).into_bytes()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<&str, &str> = arguments
        .chunks_exact(2)
        .map(|pair| (pair[0].trim_start_matches('-'), pair[1].as_str()))
        .collect();
    let number = |name: &str| -> usize { options[name].parse().expect("a number") };
    let head = std::fs::read(options["head"]).expect("the request head");
    let mut request = head;
    let offsets = options.get("offsets").map_or(1, |_| number("offsets"));
    if let Some(path) = options.get("body") {
        let body = std::fs::read(path).expect("the request body");
        request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(&body);
    } else {
        request.extend_from_slice(b"\r\n");
    }
    let requests: Vec<Vec<u8>> = (0..offsets)
        .map(|turn| match options.get("step") {
            Some(_) => at_offset(&request, turn * number("step")),
            None => request.clone(),
        })
        .collect();
    // SAFETY: plain system call without pointers.
    let epoll = unsafe { epoll_create1(0) };
    let mut connections: Vec<Connection> = (0..number("connections"))
        .map(|_| Connection::open(options["address"]))
        .collect();
    for (index, connection) in connections.iter().enumerate() {
        let mut event = EpollEvent {
            events: EPOLLIN,
            data: index as u64,
        };
        // SAFETY: the kernel copies the event; the descriptor lives as long as the connection.
        let added = unsafe {
            epoll_ctl(
                epoll,
                EPOLL_CTL_ADD,
                connection.stream.as_raw_fd(),
                &mut event,
            )
        };
        assert_eq!(added, 0, "epoll_ctl");
    }
    let rate: Option<f64> = options
        .get("rate")
        .map(|rate| rate.parse().expect("a rate"));
    let mut load = |count: usize| match rate {
        Some(rate) => run_at(&mut connections, epoll, &requests, count, rate),
        None => run(&mut connections, epoll, &requests, count),
    };
    load(number("warmup"));
    let begun = Instant::now();
    let mut latencies = load(number("count"));
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1000];
    println!(
        "{{\"requests\":{},\"seconds\":{seconds:.6},\"rate\":{:.1},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{}}}",
        latencies.len(),
        latencies.len() as f64 / seconds,
        at(500),
        at(990),
        at(999)
    );
}
