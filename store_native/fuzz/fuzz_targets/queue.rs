#![no_main]

any_bytes::fuzz!(queue);
