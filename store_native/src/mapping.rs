//! The memory behind a mapped file.
//!
//! Invariants: it begins at a page and stays where it is until it is dropped. Who may read and write which bytes is
//! said by `mapped_file.rs`.

use std::fs::File;
use std::io;

#[cfg(miri)]
pub use checked::Mapping;
#[cfg(not(miri))]
pub use mapped::Mapping;

#[cfg(not(miri))]
mod mapped {
    use memmap2::{MmapOptions, MmapRaw};

    use super::{File, io};

    /// A mapping of a whole file, shared with all who map it.
    #[derive(Debug)]
    pub struct Mapping(MmapRaw);

    impl Mapping {
        /// # Errors
        /// Any I/O error.
        pub fn writable(file: &File) -> io::Result<Self> {
            MmapOptions::new().map_raw(file).map(Self)
        }

        /// # Errors
        /// Any I/O error.
        pub fn for_reading(file: &File) -> io::Result<Self> {
            MmapOptions::new().map_raw_read_only(file).map(Self)
        }

        pub fn len(&self) -> usize {
            self.0.len()
        }

        pub fn as_ptr(&self) -> *const u8 {
            self.0.as_ptr()
        }

        pub fn as_mut_ptr(&self) -> *mut u8 {
            self.0.as_mut_ptr()
        }

        /// Has this process's view of a range let go of its pages; who looks there again gets them back.
        ///
        /// # Errors
        /// The system's.
        pub fn let_go(&self, from: usize, length: usize) -> io::Result<()> {
            // SAFETY: the mapping is of a file and shared: what was written to it stays in the file's own pages.
            unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, length) }
        }
    }
}

/// Miri, which looks at each access to memory, knows no mapping: the file's bytes lie in memory of the process and never
/// reach the file.
#[cfg(miri)]
mod checked {
    use std::io::Read;
    use std::sync::atomic::AtomicU64;

    use super::{File, io};

    #[derive(Debug)]
    pub struct Mapping {
        words: Box<[AtomicU64]>,
        length: usize,
    }

    impl Mapping {
        pub fn writable(file: &File) -> io::Result<Self> {
            let mut bytes = Vec::new();
            (&*file).read_to_end(&mut bytes)?;
            let length = bytes.len();
            bytes.resize(length.next_multiple_of(8), 0);
            let words = bytes.as_chunks::<8>().0.iter();
            let words = words.map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect();
            Ok(Self { words, length })
        }

        pub fn for_reading(file: &File) -> io::Result<Self> {
            Self::writable(file)
        }

        pub fn len(&self) -> usize {
            self.length
        }

        pub fn as_ptr(&self) -> *const u8 {
            self.words.as_ptr().cast()
        }

        pub fn as_mut_ptr(&self) -> *mut u8 {
            self.words.as_ptr().cast::<u8>().cast_mut()
        }

        #[allow(clippy::unnecessary_wraps, reason = "as the other one")]
        pub fn let_go(&self, _from: usize, _length: usize) -> io::Result<()> {
            Ok(())
        }
    }
}
