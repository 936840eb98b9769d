//! What a simulated run does, drawn from dice.

use lakemq_store::store::{Flush, Work};

use crate::dice::Dice;
use crate::jumping_clock::HOUR;
use crate::power_disk::{Failure, Synced, Unsynced};

/// What is done next.
#[derive(Debug, Clone)]
pub enum Action {
    Send {
        topic: usize,
        count: usize,
        length: usize,
        keyed: bool,
    },
    SendLater {
        topic: usize,
        level: u32,
        count: usize,
        keyed: bool,
    },
    Repeat(usize),
    Commit(usize),
    Lease {
        owner: usize,
        ttl_ms: i64,
    },
    /// Lets so many queues of a topic take messages.
    Queues(usize, u32),
    Delete(usize),
    Pass(i64),
    /// The clock is set by so many milliseconds; no time passes.
    Jump(i64),
    Work(Work),
    Checkpoint,
    /// What is older than the retention goes; or all that may.
    Expire {
        all: bool,
    },
    /// Calls of the disk fail from now on.
    Fail(Failure),
    /// A read of the next start fails.
    FailRead {
        number: usize,
        error: i32,
    },
    CleanStop,
    Kill,
    PowerCut(Unsynced, u64),
    Look,
}

/// Reads of a start, about.
const READS: usize = 60;

/// What there is in a run, beside what there always is.
#[derive(Debug, Clone, Copy)]
struct Run {
    fails: bool,
    jumps: bool,
}

pub const UNSYNCED: [Unsynced; 4] = [
    Unsynced::Lost,
    Unsynced::Kept,
    Unsynced::Torn,
    Unsynced::Mixed,
];

/// How a run flushes, and what it does.
pub fn run(dice: &mut Dice) -> (Flush, Vec<Action>) {
    let sync = dice.in_a_hundred(80);
    let run = Run {
        fails: dice.in_a_hundred(60),
        jumps: dice.in_a_hundred(40),
    };
    let many = 20 + dice.below(60);
    let mut actions: Vec<Action> = (0..many).map(|_| action(dice, run)).collect();
    if run.fails {
        fail_reads_of_starts(&mut actions, &mut Dice(dice.roll()));
    }
    (if sync { Flush::Sync } else { Flush::Async }, actions)
}

/// Before some of the stops; by dice of its own, so that a seed does otherwise what it did before this was here.
fn fail_reads_of_starts(actions: &mut Vec<Action>, dice: &mut Dice) {
    for at in (0..actions.len()).rev() {
        let stops = matches!(
            actions[at],
            Action::CleanStop | Action::Kill | Action::PowerCut(..)
        );
        if stops && dice.in_a_hundred(40) {
            let number = 1 + dice.below(READS);
            let error = [libc::EIO, libc::EMFILE, libc::EINTR][dice.below(3)];
            actions.insert(at, Action::FailRead { number, error });
        }
    }
}

fn action(dice: &mut Dice, run: Run) -> Action {
    let count = if dice.in_a_hundred(60) {
        1
    } else {
        2 + dice.below(6)
    };
    match dice.below(48) {
        0..10 => Action::Send {
            topic: dice.below(2),
            count,
            length: [10, 300, 6_000][dice.below(3)],
            keyed: dice.in_a_hundred(40),
        },
        10..14 => Action::SendLater {
            topic: dice.below(3),
            level: 1 + dice.below(3) as u32,
            count,
            keyed: dice.in_a_hundred(30),
        },
        14 | 15 => Action::Repeat(dice.below(100)),
        16 => Action::Commit(dice.below(100)),
        17 => Action::Delete(dice.below(2)),
        18 => Action::Queues(dice.below(3), 1 + dice.below(4) as u32),
        19..21 => pass(dice, run),
        21 | 22 if run.jumps => Action::Jump(jump(dice)),
        23..26 => Action::Work(Work::Flush),
        26..28 => Action::Work(Work::FlushAlone),
        28..30 => Action::Work(Work::Dispatch),
        30..34 => Action::Work(Work::Deliver),
        34 => Action::Work(Work::Prepare),
        35 | 36 => Action::Checkpoint,
        37 => Action::Expire {
            all: dice.in_a_hundred(70),
        },
        38 | 46 => Action::Lease {
            owner: dice.below(2),
            ttl_ms: [1_000, 30_000][dice.below(2)],
        },
        39 => Action::CleanStop,
        40 => Action::Kill,
        41 => Action::PowerCut(UNSYNCED[dice.below(4)], dice.roll()),
        42 | 43 if run.fails => Action::Fail(failure(dice)),
        _ => Action::Look,
    }
}

/// Where the clock jumps, delays are kept to 10 ms: no time of another length passes.
fn pass(dice: &mut Dice, run: Run) -> Action {
    let least = if run.jumps { 20 } else { 1 };
    Action::Pass([least, 500, 1_000, 5_000, 20_000][dice.below(5)])
}

fn jump(dice: &mut Dice) -> i64 {
    let ms = [1_000, 45_000, 600_000, 9_000 * HOUR][dice.below(4)];
    if dice.in_a_hundred(50) { ms } else { -ms }
}

fn failure(dice: &mut Dice) -> Failure {
    let kinds = [
        Synced::Log,
        Synced::LogNames,
        Synced::Queue,
        Synced::Index,
        Synced::Watermarks,
        Synced::Keys,
        Synced::Own,
        Synced::OwnNames,
        Synced::Config,
        Synced::ConfigNames,
        Synced::Root,
        Synced::RootNames,
        Synced::FileSystem,
    ];
    let of = dice
        .in_a_hundred(40)
        .then(|| kinds[dice.below(kinds.len())]);
    let within = if of.is_some() { 3 } else { 25 };
    Failure {
        of,
        number: 1 + dice.below(within),
        times: [1, 1, 1, 2, 5][dice.below(5)],
        error: [libc::EIO, libc::ENOSPC, libc::EMFILE, libc::EINTR][dice.below(4)],
        leaves: [0, 50, 100][dice.below(3)],
    }
}
