//! How much memory this thread took at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes held now, and the most there were.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(change: isize) {
    // A thread that ends gives memory back when this is gone already.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + change, most.max(now + change)));
    });
}

// SAFETY: all of it is the system's; counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Begins to look for the most.
pub fn start() -> isize {
    HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    })
}

/// The most that was held beyond what was held at the start.
pub fn since(start: isize) -> usize {
    HELD.with(|held| (held.get().1 - start).max(0) as usize)
}
