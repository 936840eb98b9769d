//! The append path against the hardware: records of 1 KB in batches of 100, in the log and not flushed,
//! or the same bytes by memcpy and CRC32 into a mapping of the same size.
//!
//! COUNT messages are written in ten rounds of a tenth of a second. Before each, the same bytes are copied
//! once unmeasured, so that both sides find memory that was used and given back a moment ago. Memory that a
//! virtual machine's host has to find first costs up to ten times as much, and which of the two a run got
//! would hang on the run before it.
//!
//! `append_bench append|copy DIR COUNT` prints one line: `{"rate": median messages per second}`.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

use lakemq_store::environment::{Environment, RealDisk};
use lakemq_store::mapped_file::MappedFile;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Flush, Options, Store};

const BODY_BYTES: usize = 1024;
const BATCH: usize = 100;
const ROUNDS: usize = 10;
const FILE_BYTES: u64 = 1 << 30;

fn append(directory: &Path, count: usize, body: &[u8]) -> Result<f64, Box<dyn Error>> {
    let options = Options {
        flush: Flush::Async,
        flush_interval_ms: 60_000,
        commitlog_file_size: FILE_BYTES,
        ..Options::default()
    };
    let store = Store::open(directory, options, Environment::real("")?)?;
    let message = NewMessage { body: Cow::Borrowed(body), wait_store_ok: true, ..NewMessage::default() };
    let messages = vec![message; BATCH];
    let request = AppendRequest { topic: "bench", born_host: None, idempotency_key: None };
    // Touch the path once: the topic is created and the first file mapped.
    store.append(&request, &messages)?;
    let started = Instant::now();
    for _ in 0..count / BATCH {
        store.append(&request, &messages)?;
    }
    let rate = (count / BATCH * BATCH) as f64 / started.elapsed().as_secs_f64();
    store.close()?;
    Ok(rate)
}

fn copy(directory: &Path, count: usize, body: &[u8]) -> Result<f64, Box<dyn Error>> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join("copy");
    let _ = std::fs::remove_file(&path);
    let file = MappedFile::open_owned(&path, FILE_BYTES, FILE_BYTES, &RealDisk)?;
    let mut at = 0usize;
    let mut sum = 0u32;
    let started = Instant::now();
    for _ in 0..count {
        if at + body.len() > file.len() {
            at = 0;
        }
        file.write(at, body.len(), |out| out.copy_from_slice(body));
        sum ^= crc32fast::hash(file.bytes(at, body.len()));
        at += body.len();
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    std::hint::black_box(sum);
    drop(file);
    std::fs::remove_file(path)?;
    Ok(rate)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, side, directory, count] = arguments.as_slice() else {
        return Err("usage: append_bench append|copy DIR COUNT".into());
    };
    let (directory, count) = (Path::new(directory), count.parse::<usize>()?);
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    let _ = std::fs::remove_dir_all(directory);
    let measure = match side.as_str() {
        "append" => append,
        "copy" => copy,
        _ => return Err("usage: append_bench append|copy DIR COUNT".into()),
    };
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        copy(directory, count / ROUNDS, &body)?;
        rates.push(measure(directory, count / ROUNDS, &body)?);
        std::fs::remove_dir_all(directory)?;
    }
    rates.sort_by(f64::total_cmp);
    println!("{{\"rate\": {:.1}}}", rates[ROUNDS / 2]);
    Ok(())
}
