//! The fuzzer's side of `tests/rust/any_bytes`: what holds for any bytes is said there, once for it and for `make test`.
//!
//! `make fuzz [ONLY=record SECONDS=600]` runs the targets, with the corpus of the tree as the beginning.

#[path = "../../../tests/rust/any_bytes/mod.rs"]
mod any_bytes;

pub use any_bytes::*;
pub use libfuzzer_sys;

/// Has the process end at a panic that leaves a target, and at no other: libfuzzer-sys ends it at each, also where the
/// store catches one (of the Arrow decoder).
pub fn run(holds: Holds, bytes: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| holds(bytes)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        eprintln!("it does not hold: {}", text.unwrap_or("a panic"));
        std::process::abort();
    }
}

/// Keeps panics quiet until they leave a target.
pub fn quietly() {
    std::panic::set_hook(Box::new(|info| {
        if std::env::var_os("LAKEMQ_FUZZ_PANICS").is_some() {
            eprintln!("{info}");
        }
    }));
}

/// A target by its name.
#[macro_export]
macro_rules! fuzz {
    ($target:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::quietly(), |bytes: &[u8]| {
            $crate::run($crate::$target, bytes)
        });
    };
}
