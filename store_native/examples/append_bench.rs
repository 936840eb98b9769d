//! P4's two sides: records of 1 KB appended in batches of 100, and memcpy plus CRC32 into the same kind of mapping.
//!
//!     append_bench append|copy DIR MESSAGES
//!
//! Prints `{"rate": messages per second}`. The copy side writes as many bytes a record as the store does, into
//! files made the same way, one CRC over each record; it has no lock, no queue offsets, no dispatcher behind it.
//! Called by benchmarks/appending.py.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

use lakemq_store::commitlog::writer::create_file;
use lakemq_store::environment::Environment;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Flush, Options, Store};

const BATCH: usize = 100;
const BODY: usize = 1024;
const FILE_SIZE: u64 = 1 << 30;
const WARM_UP: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, side, directory, messages] = arguments.as_slice() else {
        return Err("usage: append_bench append|copy DIR MESSAGES".into());
    };
    let directory = Path::new(directory);
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let messages: usize = messages.parse()?;
    let rate = match side.as_str() {
        "append" => append(directory, messages)?,
        "copy" => copy(directory, messages)?,
        _ => return Err("the side is append or copy".into()),
    };
    println!("{{\"rate\": {rate:.1}}}");
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn body() -> Vec<u8> {
    (0..BODY).map(|at| b'a' + (at % 26) as u8).collect()
}

fn append(directory: &Path, messages: usize) -> Result<f64, Box<dyn Error>> {
    let options = Options { flush: Flush::Async, ..Options::default() };
    let store = Store::open(directory, options, Environment::real("")?)?;
    let request =
        AppendRequest { topic: "bench", born_host: None, idempotency_key: None, full_results: false };
    let body = body();
    let batch: Vec<NewMessage<'_>> = (0..BATCH)
        .map(|_| NewMessage { body: Cow::Borrowed(&body), wait_store_ok: true, ..NewMessage::default() })
        .collect();
    let run = |count: usize| -> Result<(), Box<dyn Error>> {
        for _ in 0..count / BATCH {
            store.append(&request, &batch, true)?;
        }
        Ok(())
    };
    run(WARM_UP)?;
    let begun = Instant::now();
    run(messages)?;
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    store.close()?;
    Ok(rate)
}

fn copy(directory: &Path, messages: usize) -> Result<f64, Box<dyn Error>> {
    let environment = Environment::real("")?;
    let record = vec![b'r'; record_size()];
    let per_file = FILE_SIZE as usize / record.len();
    let mut files = Vec::new();
    for number in 0..(messages + WARM_UP).div_ceil(per_file) {
        files.push(create_file(directory, number as i64 * FILE_SIZE as i64, FILE_SIZE, &environment)?);
    }
    let mut checksums = 0u32;
    let mut run = |first: usize, count: usize| {
        for number in first..first + count {
            let file = &files[number / per_file].file;
            checksums ^= file.write(number % per_file * record.len(), record.len(), |out| {
                out.copy_from_slice(&record);
                crc32fast::hash(out)
            });
        }
    };
    run(0, WARM_UP);
    let begun = Instant::now();
    run(WARM_UP, messages);
    let seconds = begun.elapsed().as_secs_f64();
    std::hint::black_box(checksums);
    Ok(messages as f64 / seconds)
}

/// What the store writes for this message: fixed fields, body, topic, UNIQ_KEY and the record's own CRC.
fn record_size() -> usize {
    91 + BODY + "bench".len() + "UNIQ_KEY".len() + 2 + 32 + 20
}
