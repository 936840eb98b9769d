#![no_main]

any_bytes::fuzz!(keys);
