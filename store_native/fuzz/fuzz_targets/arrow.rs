#![no_main]

any_bytes::fuzz!(arrow);
