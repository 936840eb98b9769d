//! Message ids: the offset id (where a record lies) and the client id (`UNIQ_KEY`) the store makes, in the layout
//! of RocketMQ's `MessageClientIDSetter`, whose readers take address and time out of one.
//!
//! Invariants: two client ids of one opening of a store differ, whatever its clock does.
//! Threads: any makes ids; the counter is atomic.

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::calendar::month_start;

/// One upper-case hex digit of the low four bits.
const fn digit(bits: u8) -> u8 {
    let bits = bits & 15;
    if bits < 10 { b'0' + bits } else { b'A' + bits - 10 }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push(char::from(digit(byte >> 4)));
        out.push(char::from(digit(*byte)));
    }
}

/// The bytes of an even number of hex digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let value = |byte: &u8| char::from(*byte).to_digit(16).and_then(|v| u8::try_from(v).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        })
        .collect()
}

/// The offset id: store host, port and physical offset in hex, 32 digits (56 for IPv6).
pub fn offset_id(store_host: SocketAddr, physical_offset: i64) -> String {
    let mut out = String::with_capacity(56);
    match store_host.ip() {
        IpAddr::V4(ip) => push_hex(&mut out, &ip.octets()),
        IpAddr::V6(ip) => push_hex(&mut out, &ip.octets()),
    }
    push_hex(&mut out, &u32::from(store_host.port()).to_be_bytes());
    push_hex(&mut out, &physical_offset.to_be_bytes());
    out
}

/// Reads an offset id back; `None` when the text is not one.
pub fn parse_offset_id(text: &str) -> Option<(SocketAddr, i64)> {
    let bytes = from_hex(text)?;
    let (ip, rest): (IpAddr, &[u8]) = match bytes.len() {
        16 => bytes.split_first_chunk::<4>().map(|(ip, rest)| (Ipv4Addr::from(*ip).into(), rest))?,
        28 => bytes.split_first_chunk::<16>().map(|(ip, rest)| (Ipv6Addr::from(*ip).into(), rest))?,
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<4>()?;
    let (offset, _) = rest.split_first_chunk::<8>()?;
    let port = u16::try_from(u32::from_be_bytes(*port)).ok()?;
    Some((SocketAddr::new(ip, port), i64::from_be_bytes(*offset)))
}

/// Shorter than any month.
const WITHIN_A_MONTH_MS: i64 = 28 * 86_400_000;
/// How far an id's time may lie ahead of the reader's clock.
const AHEAD_MS: i64 = 600_000;

/// When a client id was made, if it has the layout of one, in the month up to `now_ms`. An older one comes out
/// as of this month or the last: the id does not say.
pub fn time_of(id: &str, now_ms: i64) -> Option<i64> {
    let bytes = from_hex(id)?;
    // Behind an address of 4 or 16 bytes, 2 of the process and 4 more.
    let at = match bytes.len() {
        16 => 10,
        28 => 22,
        _ => return None,
    };
    let (of_month, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let this_month = month_start(now_ms);
    let of_month = i64::from(u32::from_be_bytes(*of_month));
    if this_month + of_month <= now_ms + AHEAD_MS {
        return Some(this_month + of_month);
    }
    Some(month_start(this_month - 1) + of_month)
}

/// Makes client ids: 32 upper-case hex digits, unique over brokers, processes and restarts.
///
/// Layout: 4 bytes address, 6 bytes where RocketMQ has a process and a class loader, 4 bytes milliseconds
/// since the month began (UTC), 2 bytes counter. The six are drawn when the store opens, and one is added to
/// them each time the counter comes round: two ids of one process differ even where its clock stands still,
/// is set back, or gives more than 65,536 ids the same millisecond.
#[derive(Debug)]
pub struct UniqKeys {
    address: [u8; 4],
    drawn: u64,
    made: AtomicU64,
    /// Start of the month of the last id.
    month: AtomicI64,
}

impl UniqKeys {
    /// `random` must be drawn for each opening of the store; six bytes of it are used.
    pub fn new(address: IpAddr, random: &[u8; 16]) -> Self {
        let address = match address {
            IpAddr::V4(ip) => ip.octets(),
            // The end of it, which tells hosts of one network apart.
            IpAddr::V6(ip) => {
                let [.., a, b, c, d] = ip.octets();
                [a, b, c, d]
            }
        };
        let [drawn @ .., _, _, _, _, _, _, _, _] = *random;
        Self { address, drawn: u64::from_be_bytes(drawn), made: AtomicU64::new(0), month: AtomicI64::new(0) }
    }

    /// The next id, as ASCII bytes.
    pub fn next(&self, now_ms: i64) -> [u8; 32] {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let [_, _, drawn @ ..] = self.drawn.wrapping_add(made >> 16).to_be_bytes();
        let raw = [
            self.address.as_slice(),
            &drawn,
            &self.of_month(now_ms).to_be_bytes(),
            &(made as u16).to_be_bytes(),
        ];
        let mut out = [b'0'; 32];
        for (byte, pair) in raw.into_iter().flatten().zip(out.chunks_exact_mut(2)) {
            if let [high, low] = pair {
                *high = digit(byte >> 4);
                *low = digit(*byte);
            }
        }
        out
    }

    fn of_month(&self, now_ms: i64) -> u32 {
        let mut start = self.month.load(Ordering::Relaxed);
        if !(0..WITHIN_A_MONTH_MS).contains(&(now_ms - start)) {
            start = month_start(now_ms);
            self.month.store(start, Ordering::Relaxed);
        }
        // At most 31 days, which fits.
        (now_ms - start) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_offset_id_reads_back() {
        for host in ["127.0.0.1:8090", "[::1]:10911"] {
            let host: SocketAddr = host.parse().expect("an address");
            let id = offset_id(host, 0x1234_5678_9abc);
            assert_eq!(parse_offset_id(&id), Some((host, 0x1234_5678_9abc)));
        }
        for bad in [
            "7F00000100001F9A00000000000000ZZ",
            "",
            "7F",
            "é00000100001F9A000000000000000",
            "7F00000100011F9A0000000000000000",
        ] {
            assert_eq!(parse_offset_id(bad), None, "{bad}");
        }
        assert_eq!(
            offset_id("127.0.0.1:10911".parse().expect("an address"), 1),
            "7F00000100002A9F0000000000000001"
        );
    }

    fn made(keys: &UniqKeys, now_ms: i64) -> String {
        String::from_utf8(keys.next(now_ms).to_vec()).expect("ASCII")
    }

    #[test]
    fn test_an_id_says_the_address_and_the_time_within_the_month() {
        let keys = UniqKeys::new("10.1.2.3".parse().expect("an address"), &[7; 16]);
        let new_year = 1_798_761_600_000;
        for now in [new_year - 1, new_year, new_year + 30 * 86_400_000, 0, 1_583_020_799_999, new_year - 5] {
            let id = made(&keys, now);
            assert!(id.starts_with("0A010203070707070707"), "{id}");
            assert_eq!(time_of(&id, now), Some(now), "{id}");
            assert_eq!(time_of(&id, now + 3000), Some(now), "{id}, read a little later");
        }
        let id = made(&keys, new_year - 1);
        assert_eq!(time_of(&id, new_year + 5), Some(new_year - 1), "over the month's end");
        assert_eq!(time_of("not an id", 0), None);
    }

    #[test]
    fn test_ids_differ_beyond_what_the_counter_holds_while_the_clock_stands_still_or_goes_back() {
        let keys = UniqKeys::new("::1".parse().expect("an address"), &[255; 16]);
        let ids: std::collections::HashSet<_> =
            (0..200_000i64).map(|at| keys.next(5_000 - (at % 3) * 1000)).collect();
        assert_eq!(ids.len(), 200_000);
    }
}
