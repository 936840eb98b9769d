#![no_main]

any_bytes::fuzz!(tags);
