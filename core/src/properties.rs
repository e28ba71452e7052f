//! Content-header properties as raw bytes: what is cut, moved or added, as
//! `relay/bulk_amqp/content_header.py`, `relay/packing/intake.py` and
//! `relay/delivery/properties.py` do.
//!
//! Bytes that are no properties are `Malformed`, and left to the Python twins, which word the
//! reason.

use std::borrow::Cow;

use blake2b_simd::Params;

pub use crate::field_table::Malformed;
use crate::field_table::{put_text, value, without};

pub const CONTENT_TYPE: u16 = 0x8000;
pub const CONTENT_ENCODING: u16 = 0x4000;
pub const HEADERS: u16 = 0x2000;
pub const EXPIRATION: u16 = 0x0100;
pub const MESSAGE_ID: u16 = 0x0080;
pub const USER_ID: u16 = 0x0010;
pub const APP_ID: u16 = 0x0008;
pub const CLUSTER_ID: u16 = 0x0004;
const UNUSED: u16 = 0x0003;

#[derive(Clone, Copy)]
enum Size {
    /// Length, 1, and so many bytes.
    Short,
    /// Length, 4, and a table.
    Long,
    Fixed(usize),
}

/// All properties in wire order.
const WIRE_ORDER: [(u16, Size); 14] = [
    (CONTENT_TYPE, Size::Short),
    (CONTENT_ENCODING, Size::Short),
    (HEADERS, Size::Long),
    (0x1000, Size::Fixed(1)), // delivery mode
    (0x0800, Size::Fixed(1)), // priority
    (0x0400, Size::Short),    // correlation ID
    (0x0200, Size::Short),    // reply to
    (EXPIRATION, Size::Short),
    (MESSAGE_ID, Size::Short),
    (0x0040, Size::Fixed(8)), // timestamp
    (0x0020, Size::Short),    // type
    (USER_ID, Size::Short),
    (APP_ID, Size::Short),
    (CLUSTER_ID, Size::Short),
];

/// Largest expiration that RabbitMQ takes.
const MAX_EXPIRATION_MS: u64 = (1 << 32) - 1;

const FORGEABLE_PREFIX: &[u8] = b"x-mesh-";
const USER_HEADER: &[u8] = b"x-mesh-user-id";
const CLUSTER_HEADER: &[u8] = b"x-mesh-cluster-id";
const DEATHS_HEADER: &[u8] = b"x-mesh-deaths";
const DEATH_HEADER: &[u8] = b"x-death";
/// Headers that a quorum queue adds.
const QUEUE_HEADERS: [&[u8]; 2] = [b"x-delivery-count", b"x-acquired-count"];

/// A header table that holds nothing but a quorum queue's count, up to its number.
const LONE_COUNT: &[u8] = b"\x00\x00\x00\x1a\x10x-delivery-countl";
const LONE_COUNT_BYTES: usize = 4 + 26;

/// Flags of the present properties; 0 where even these are cut short.
pub fn flags_of(properties: &[u8]) -> u16 {
    match properties {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Position after the property at `at`; may lie past the end of the bytes.
fn after(properties: &[u8], at: usize, size: Size) -> Result<usize, Malformed> {
    Ok(match size {
        Size::Short => at + 1 + *properties.get(at).ok_or(Malformed)? as usize,
        Size::Long => {
            let length = properties.get(at..at + 4).ok_or(Malformed)?;
            at + 4 + u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize
        }
        Size::Fixed(bytes) => at + bytes,
    })
}

/// Start and end of a property's bytes, its length included; None if absent.
pub fn span(properties: &[u8], sought: u16) -> Result<Option<(usize, usize)>, Malformed> {
    let flags = flags_of(properties);
    if flags & sought == 0 {
        return Ok(None);
    }
    let mut at = 2;
    for (which, size) in WIRE_ORDER {
        if flags & which == 0 {
            continue;
        }
        let start = at;
        at = after(properties, at, size)?;
        if which == sought {
            return if at > properties.len() { Err(Malformed) } else { Ok(Some((start, at))) };
        }
    }
    Err(Malformed)
}

/// A string property; None if absent.
pub fn text(properties: &[u8], which: u16) -> Result<Option<&[u8]>, Malformed> {
    Ok(span(properties, which)?.map(|(start, end)| &properties[start + 1..end]))
}

/// The header table without its length; None if absent.
pub fn headers(properties: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    Ok(span(properties, HEADERS)?.map(|(start, end)| &properties[start + 4..end]))
}

/// Content type and encoding, both empty where either cannot be read.
pub fn content_kind(properties: &[u8]) -> (&[u8], &[u8]) {
    if flags_of(properties) & (CONTENT_TYPE | CONTENT_ENCODING) == 0 {
        return (&[], &[]);
    }
    match (text(properties, CONTENT_TYPE), text(properties, CONTENT_ENCODING)) {
        (Ok(kind), Ok(encoding)) => (kind.unwrap_or(&[]), encoding.unwrap_or(&[])),
        _ => (&[], &[]),
    }
}

pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Changes to a message's properties: strings to set, flags to take out, headers to add behind the
/// present ones (encoded entries).
#[derive(Default, Clone, Copy)]
pub struct Changes<'a> {
    pub expiration: Option<&'a [u8]>,
    pub user_id: Option<&'a [u8]>,
    pub cluster_id: Option<&'a [u8]>,
    pub take_out: u16,
    pub headers: &'a [u8],
}

impl<'a> Changes<'a> {
    fn value_of(&self, which: u16) -> Option<&'a [u8]> {
        match which {
            EXPIRATION => self.expiration,
            USER_ID => self.user_id,
            CLUSTER_ID => self.cluster_id,
            _ => None,
        }
    }

    fn to_set(&self) -> u16 {
        let mut flags = if self.headers.is_empty() { 0 } else { HEADERS };
        for which in [EXPIRATION, USER_ID, CLUSTER_ID] {
            if self.value_of(which).is_some() {
                flags |= which;
            }
        }
        flags
    }
}

/// Append the changed properties to `out`; every byte that no change names stays. After an error
/// `out` holds a part of them.
pub fn rewrite(
    properties: &[u8],
    changes: &Changes<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    if properties.len() < 2 {
        return Err(Malformed);
    }
    let flags = flags_of(properties);
    let set = changes.to_set();
    out.extend_from_slice(&((flags | set) & !changes.take_out).to_be_bytes());
    let mut at = 2;
    for (which, size) in WIRE_ORDER {
        if (flags | set) & which == 0 {
            continue;
        }
        let start = at;
        if flags & which != 0 {
            at = after(properties, at, size)?;
        }
        let present = properties.get(start..at).ok_or(Malformed)?;
        if which == HEADERS && set & HEADERS != 0 {
            let table = present.get(4..).unwrap_or(&[]);
            out.extend_from_slice(&((table.len() + changes.headers.len()) as u32).to_be_bytes());
            out.extend_from_slice(table);
            out.extend_from_slice(changes.headers);
        } else if let Some(text) = changes.value_of(which) {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        } else if changes.take_out & which == 0 {
            out.extend_from_slice(present);
        }
    }
    if at == properties.len() {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// A message's properties as they are logged.
#[derive(Debug, PartialEq, Eq)]
pub struct Cleaned<'a> {
    pub properties: Cow<'a, [u8]>,
    /// Milliseconds until the message expires; None without an expiration.
    pub ttl_ms: Option<u64>,
}

/// Header table and user ID of properties that have both; else None.
pub fn table_and_user(properties: &[u8]) -> Result<Option<(&[u8], &[u8])>, Malformed> {
    Ok(match (headers(properties)?, text(properties, USER_ID)?) {
        (Some(table), Some(user)) if !table.is_empty() => Some((table, user)),
        _ => None,
    })
}

/// Properties without what is the mesh's or the queue's own; see `Intake.clean`. Whether a message
/// is ours coming round is decided before.
pub fn clean(properties: &[u8]) -> Result<Cleaned<'_>, Malformed> {
    let flags = flags_of(properties);
    let mut kept = Cow::Borrowed(properties);
    let mut ttl_ms = None;
    if flags & (HEADERS | EXPIRATION | USER_ID | CLUSTER_ID) == 0 {
        return Ok(Cleaned { properties: kept, ttl_ms });
    }
    if flags & EXPIRATION != 0 {
        ttl_ms = text(properties, EXPIRATION)?.and_then(milliseconds);
    }
    if flags & HEADERS != 0 {
        if let Some(rest) = without_own_headers(properties, flags)? {
            kept = Cow::Owned(rest);
        }
    }
    if flags & (USER_ID | CLUSTER_ID) != 0 {
        let mut moved = Vec::new();
        for (which, name) in [(USER_ID, USER_HEADER), (CLUSTER_ID, CLUSTER_HEADER)] {
            if let Some(text) = text(properties, which)? {
                put_text(&mut moved, name, text);
            }
        }
        let changes =
            Changes { take_out: USER_ID | CLUSTER_ID, headers: &moved, ..Changes::default() };
        let mut made = Vec::with_capacity(kept.len() + moved.len() + 4);
        rewrite(&kept, &changes, &mut made)?;
        kept = Cow::Owned(made);
    }
    Ok(Cleaned { properties: kept, ttl_ms })
}

/// An expiration in digits, capped at what a broker takes. RabbitMQ lets nothing else pass.
fn milliseconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sum = text
        .iter()
        .fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(sum.min(MAX_EXPIRATION_MS))
}

/// Properties without the headers that publishers must not set and the queue's own; None if there
/// is no such header. A table left empty goes altogether.
fn without_own_headers(properties: &[u8], flags: u16) -> Result<Option<Vec<u8>>, Malformed> {
    let (start, end) = match span(properties, HEADERS)? {
        Some(found) => found,
        None => return Ok(None),
    };
    let table = &properties[start + 4..end];
    let rest = if properties[start..].starts_with(LONE_COUNT) && end == start + LONE_COUNT_BYTES {
        Vec::new()
    } else {
        if !contains(table, FORGEABLE_PREFIX)
            && !QUEUE_HEADERS.iter().any(|name| contains(table, name))
        {
            return Ok(None);
        }
        let unwanted =
            |name: &[u8]| name.starts_with(FORGEABLE_PREFIX) || QUEUE_HEADERS.contains(&name);
        match without(table, unwanted)? {
            Some(rest) => rest,
            None => return Ok(None),
        }
    };
    let mut made = Vec::with_capacity(properties.len());
    if rest.is_empty() {
        made.extend_from_slice(&(flags & !HEADERS).to_be_bytes());
        made.extend_from_slice(&properties[2..start]);
    } else {
        made.extend_from_slice(&properties[..start]);
        made.extend_from_slice(&(rest.len() as u32).to_be_bytes());
        made.extend_from_slice(&rest);
    }
    made.extend_from_slice(&properties[end..]);
    Ok(Some(made))
}

/// What a deliverer adds to each message that came by one path; see `DeliveryStamp`.
pub struct Stamp {
    /// Encoded headers.
    pub added: Vec<u8>,
    pub user: Vec<u8>,
    pub cluster_id: Vec<u8>,
}

impl Stamp {
    /// Append a message's properties as delivered. `left_ms`: what is left of its expiration.
    pub fn apply(
        &self,
        properties: &[u8],
        left_ms: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        if properties.len() < 2 {
            return Err(Malformed);
        }
        let flags = flags_of(properties);
        let mut with_deaths = Vec::new();
        let mut added = &self.added;
        if flags & HEADERS != 0 && contains(properties, DEATH_HEADER) {
            if let Some(death) = value(headers(properties)?.unwrap_or(&[]), DEATH_HEADER)? {
                with_deaths.extend_from_slice(&self.added);
                put_text(&mut with_deaths, DEATHS_HEADER, &death_digest(death));
                added = &with_deaths;
            }
        }
        if flags & (EXPIRATION | USER_ID | APP_ID | CLUSTER_ID | UNUSED) != 0 || left_ms.is_some() {
            let left = left_ms.map(|left| left.to_string());
            let changes = Changes {
                expiration: left.as_ref().map(String::as_bytes),
                user_id: Some(&self.user),
                cluster_id: Some(&self.cluster_id),
                take_out: if left.is_none() { EXPIRATION } else { 0 },
                headers: added,
            };
            return rewrite(properties, &changes, out);
        }
        // What is added stands behind all that is present: only the headers are cut into.
        let mut at = 2;
        for which in [CONTENT_TYPE, CONTENT_ENCODING] {
            if flags & which != 0 {
                at = after(properties, at, Size::Short)?;
            }
        }
        let end = if flags & HEADERS == 0 { at } else { after(properties, at, Size::Long)? };
        let before = properties.get(2..at).ok_or(Malformed)?;
        let behind = properties.get(end..).ok_or(Malformed)?;
        let table = properties.get(at..end).and_then(|table| table.get(4..)).unwrap_or(&[]);
        out.extend_from_slice(&(flags | HEADERS | USER_ID | CLUSTER_ID).to_be_bytes());
        out.extend_from_slice(before);
        out.extend_from_slice(&((table.len() + added.len()) as u32).to_be_bytes());
        out.extend_from_slice(table);
        out.extend_from_slice(added);
        out.extend_from_slice(behind);
        for text in [&self.user, &self.cluster_id] {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
        Ok(())
    }
}

/// Digest of an `x-death` (tag and value), in hexadecimal digits.
fn death_digest(death: &[u8]) -> Vec<u8> {
    let digest = Params::new().hash_length(8).hash(death);
    digest.to_hex().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Persistent, with a message ID; `more` flags and bytes come before.
    fn persistent(more: u16, before: &[u8]) -> Vec<u8> {
        let mut made = (0x1080 | more).to_be_bytes().to_vec();
        made.extend_from_slice(before);
        made.extend_from_slice(b"\x02\x02id");
        made
    }

    fn table(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, text) in entries {
            put_text(&mut block, name, text);
        }
        let mut made = (block.len() as u32).to_be_bytes().to_vec();
        made.extend_from_slice(&block);
        made
    }

    #[test]
    fn common_properties_are_borrowed() {
        let properties = persistent(0, b"");
        let cleaned = clean(&properties).unwrap();
        assert!(matches!(cleaned.properties, Cow::Borrowed(_)));
        assert_eq!(cleaned.ttl_ms, None);
    }

    #[test]
    fn headers_of_mesh_and_queue_go_and_a_table_left_empty_too() {
        let mixed =
            table(&[(b"x-mesh-path", b"forged"), (b"kept", b"1"), (b"x-delivery-count", b"")]);
        let kept = persistent(HEADERS, &table(&[(b"kept", b"1")]));
        assert_eq!(clean(&persistent(HEADERS, &mixed)).unwrap().properties, kept);
        let alone = persistent(HEADERS, &table(&[(b"x-mesh-path", b"forged")]));
        assert_eq!(clean(&alone).unwrap().properties, persistent(0, b""));
        let count = persistent(HEADERS, b"\x00\x00\x00\x1a\x10x-delivery-countl\0\0\0\0\0\0\0\x01");
        assert_eq!(clean(&count).unwrap().properties, persistent(0, b""));
    }

    #[test]
    fn an_expiration_is_read_and_stays() {
        for (text, ttl_ms) in [
            ("250", Some(250)),
            ("99999999999999999999999", Some(MAX_EXPIRATION_MS)),
            ("soon", None),
            ("", None),
        ] {
            let mut properties = (EXPIRATION).to_be_bytes().to_vec();
            properties.push(text.len() as u8);
            properties.extend_from_slice(text.as_bytes());
            let cleaned = clean(&properties).unwrap();
            assert_eq!((&*cleaned.properties, cleaned.ttl_ms), (&properties[..], ttl_ms));
        }
    }

    #[test]
    fn user_and_cluster_become_headers() {
        let mut properties = (USER_ID | CLUSTER_ID).to_be_bytes().to_vec();
        properties.extend_from_slice(b"\x03ann\x02c1");
        let mut moved = HEADERS.to_be_bytes().to_vec();
        moved.extend_from_slice(&table(&[(USER_HEADER, b"ann"), (CLUSTER_HEADER, b"c1")]));
        assert_eq!(clean(&properties).unwrap().properties, moved);
    }

    #[test]
    fn no_cut_of_walked_properties_is_taken_for_whole() {
        let mut properties = (HEADERS | EXPIRATION | USER_ID).to_be_bytes().to_vec();
        properties.extend_from_slice(&table(&[(b"x-mesh-path", b"forged"), (b"kept", b"1")]));
        properties.extend_from_slice(b"\x03250\x03ann");
        assert!(clean(&properties).is_ok());
        for end in 2..properties.len() {
            assert_eq!(clean(&properties[..end]), Err(Malformed), "cut at {}", end);
        }
    }

    #[test]
    fn a_stamp_is_the_same_by_cutting_and_by_walking() {
        let stamp = Stamp {
            added: table(&[(b"x-mesh-exchange", b"orders")])[4..].to_vec(),
            user: b"relay".to_vec(),
            cluster_id: b"paris".to_vec(),
        };
        let properties = persistent(HEADERS, &table(&[(b"kept", b"1")]));
        let (mut cut, mut walked) = (Vec::new(), Vec::new());
        stamp.apply(&properties, None, &mut cut).unwrap();
        let changes = Changes {
            user_id: Some(b"relay"),
            cluster_id: Some(b"paris"),
            headers: &stamp.added,
            ..Changes::default()
        };
        rewrite(&properties, &changes, &mut walked).unwrap();
        assert_eq!(cut, walked);
    }
}
