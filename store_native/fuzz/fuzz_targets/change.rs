#![no_main]

any_bytes::fuzz!(change);
