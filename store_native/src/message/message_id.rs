//! Message ids: the offset id (where a record lies) and the client id (`UNIQ_KEY`) the store makes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
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
    if !matches!(text.len(), 32 | 56) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let bytes: Vec<u8> = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect::<Option<_>>()?;
    let (ip, rest): (IpAddr, &[u8]) = if bytes.len() == 16 {
        (Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(), &bytes[4..])
    } else {
        (Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..16]).ok()?).into(), &bytes[16..])
    };
    let port = u32::from_be_bytes(rest[..4].try_into().ok()?);
    let offset = i64::from_be_bytes(rest[4..12].try_into().ok()?);
    Some((SocketAddr::new(ip, u16::try_from(port).ok()?), offset))
}

/// Makes client ids: 32 upper-case hex digits, unique over processes and restarts.
///
/// Layout: 10 random bytes drawn when the store opens, then the seconds (mod 2^16) and a counter,
/// so that two ids of one process differ even where its clock stands still.
#[derive(Debug)]
pub struct UniqKeys {
    prefix: [u8; 10],
    counter: AtomicU32,
}

impl UniqKeys {
    /// `prefix` must be random for each opening of the store.
    pub fn new(prefix: [u8; 10]) -> Self {
        Self { prefix, counter: AtomicU32::new(0) }
    }

    /// The next id, as ASCII bytes.
    pub fn next(&self, now_ms: i64) -> [u8; 32] {
        let mut raw = [0u8; 16];
        raw[..10].copy_from_slice(&self.prefix);
        raw[10..12].copy_from_slice(&((now_ms / 1000) as u16).to_be_bytes());
        raw[12..].copy_from_slice(&self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let mut out = [0u8; 32];
        for (at, byte) in raw.iter().enumerate() {
            out[at * 2] = HEX[usize::from(byte >> 4)];
            out[at * 2 + 1] = HEX[usize::from(byte & 15)];
        }
        out
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
        assert_eq!(parse_offset_id("7F00000100001F9A00000000000000ZZ"), None);
        assert_eq!(
            offset_id("127.0.0.1:10911".parse().expect("an address"), 1),
            "7F00000100002A9F0000000000000001"
        );
    }

    #[test]
    fn test_ids_of_one_maker_differ() {
        let keys = UniqKeys::new([7; 10]);
        assert_ne!(keys.next(0), keys.next(0));
    }
}
