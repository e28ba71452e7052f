//! Identities of messages and hashes of their contents, as `dedup/identity.py` makes them.

use blake2b_simd::many::{hash_many, HashManyJob};
use blake2b_simd::Params;

pub const IDENTITY_BYTES: usize = 16;
/// Bytes of a content hash that barrier and ledger keep.
pub const CONTENT_KEPT: usize = 8;
pub const RANDOM_BYTES: usize = 10;
const HEAD_BYTES: usize = 14;
const URN: &[u8] = b"urn:uuid:";
const UUID_CHARACTERS: usize = 36;
const URN_CHARACTERS: usize = URN.len() + UUID_CHARACTERS;
/// Largest body that is copied behind its head to be hashed in one piece.
const JOIN_UP_TO: usize = 64 * 1024;

pub type Identity = [u8; IDENTITY_BYTES];

/// 16 bytes for a string; None for an empty one.
pub fn text_identity(text: &[u8]) -> Option<Identity> {
    if text.is_empty() {
        return None;
    }
    Params::new().hash_length(IDENTITY_BYTES).hash(text).as_bytes().try_into().ok()
}

/// The 16 bytes of a UUID in canonical form (36 characters), or as a URN: these behind `urn:uuid:`;
/// either case.
pub fn uuid_of(text: &[u8]) -> Option<Identity> {
    let text = match text.len() {
        UUID_CHARACTERS => text,
        URN_CHARACTERS if text[..URN.len()].eq_ignore_ascii_case(URN) => &text[URN.len()..],
        _ => return None,
    };
    if [8, 13, 18, 23].iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let mut found = [0u8; IDENTITY_BYTES];
    let mut digits = 0;
    for &character in text.iter().filter(|&&character| character != b'-') {
        let digit = (character as char).to_digit(16)? as u8;
        *found.get_mut(digits / 2)? |= if digits % 2 == 0 { digit << 4 } else { digit };
        digits += 1;
    }
    (digits == 2 * IDENTITY_BYTES).then_some(found)
}

/// A UUIDv7: 48 bits of milliseconds since 1970, and 74 bits of `random`.
pub fn uuid7(now_ms: u64, random: &[u8]) -> Identity {
    let chance = random.iter().fold(0u128, |sum, &byte| sum << 8 | byte as u128);
    let made = (now_ms as u128 & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (chance >> 62 & 0xFFF) << 64
        | 0b10 << 62
        | chance & 0x3FFF_FFFF_FFFF_FFFF;
    made.to_be_bytes()
}

/// What a content hash is made of.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    pub routing_key: &'a [u8],
    pub content_type: &'a [u8],
    pub content_encoding: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Content<'a> {
    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0u8; HEAD_BYTES];
        head[..4].copy_from_slice(&(self.routing_key.len() as u32).to_be_bytes());
        head[4] = self.content_type.len() as u8;
        head[5] = self.content_encoding.len() as u8;
        head[6..].copy_from_slice(&(self.body.len() as u64).to_be_bytes());
        head
    }

    fn strings(&self) -> [&'a [u8]; 3] {
        [self.routing_key, self.content_type, self.content_encoding]
    }

    pub fn hash(&self) -> Identity {
        let mut state = Params::new().hash_length(IDENTITY_BYTES).to_state();
        state.update(&self.head());
        for part in self.strings() {
            state.update(part);
        }
        state.update(self.body);
        let mut found = [0u8; IDENTITY_BYTES];
        found.copy_from_slice(state.finalize().as_bytes());
        found
    }
}

/// The first bytes of each content's hash, one after the other. Several are hashed at a time, in
/// lanes of the processor's vectors.
pub fn content_hashes(contents: &[Content<'_>]) -> Vec<u8> {
    let mut params = Params::new();
    params.hash_length(IDENTITY_BYTES);
    let mut found = vec![0u8; CONTENT_KEPT * contents.len()];
    let mut joined: Vec<u8> =
        Vec::with_capacity(contents.iter().map(|each| 128 + each.body.len().min(JOIN_UP_TO)).sum());
    let mut places: Vec<(usize, usize, usize)> = Vec::with_capacity(contents.len());
    for (number, content) in contents.iter().enumerate() {
        if content.body.len() > JOIN_UP_TO {
            found[CONTENT_KEPT * number..CONTENT_KEPT * (number + 1)]
                .copy_from_slice(&content.hash()[..CONTENT_KEPT]);
            continue;
        }
        let begin = joined.len();
        joined.extend_from_slice(&content.head());
        for part in content.strings() {
            joined.extend_from_slice(part);
        }
        joined.extend_from_slice(content.body);
        places.push((number, begin, joined.len()));
    }
    // The lanes of a round are as long as their longest: so like goes beside like.
    places.sort_by_key(|&(_, begin, end)| end - begin);
    let mut jobs: Vec<HashManyJob<'_>> = places
        .iter()
        .map(|&(_, begin, end)| HashManyJob::new(&params, &joined[begin..end]))
        .collect();
    hash_many(jobs.iter_mut());
    for (&(number, ..), job) in places.iter().zip(&jobs) {
        found[CONTENT_KEPT * number..CONTENT_KEPT * (number + 1)]
            .copy_from_slice(&job.to_hash().as_bytes()[..CONTENT_KEPT]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_in_either_case_and_nothing_else_is() {
        let read = uuid_of(b"0190163D-8694-739b-aea5-966c26f8ad91").unwrap();
        assert_eq!(read[..4], [0x01, 0x90, 0x16, 0x3d]);
        assert_eq!(uuid_of(b"0190163d-8694-739b-aea5-966c26f8ad9g"), None);
        assert_eq!(uuid_of(b"0190163d-8694-739b-aea5-966c26f8ad9"), None);
        assert_eq!(uuid_of(b"0190163d-8694-739b-aea5--66c26f8ad91"), None);
        assert_eq!(uuid_of(b"0190163d86940-739b-aea5-966c26f8ad91"), None);
    }

    #[test]
    fn a_urn_of_a_uuid_is_that_uuid_and_nothing_else_is() {
        let bare = b"0190163d-8694-739b-aea5-966c26f8ad91";
        for prefix in ["urn:uuid:", "URN:UUID:", "Urn:uUid:"] {
            for uuid in [bare.to_vec(), bare.to_ascii_uppercase()] {
                let urn = [prefix.as_bytes(), &uuid].concat();
                assert_eq!(uuid_of(&urn), uuid_of(bare));
                assert_eq!(uuid_of(&urn[1..]), None);
                assert_eq!(uuid_of(&urn[..44]), None);
                assert_eq!(uuid_of(&[&urn[..], b" "].concat()), None);
            }
        }
        assert!(uuid_of(bare).is_some());
        for text in [
            "urn:uuid:",
            "urn:uuid:0190163d8694739baea5966c26f8ad91",
            "urn:uuid:0190163d-8694-739b-aea5-966c26f8ad9g",
            "urn:uuid:0190163d86940-739b-aea5-966c26f8ad91",
            "urn:uuid:0190163d-8694-739b-aea5-966c26f8ad\u{e9}",
            "urn:guid:0190163d-8694-739b-aea5-966c26f8ad91",
            "urn-uuid-0190163d-8694-739b-aea5-966c26f8ad91",
            "urn:uuid:urn:uuid:0190163d-8694-739b-aea5-966c26f8ad91",
            "\u{17f}rn:uuid0190163d-8694-739b-aea5-966c26f8ad91",
        ] {
            assert_eq!(uuid_of(text.as_bytes()), None, "{}", text);
        }
    }

    #[test]
    fn a_made_uuid_has_the_time_the_version_and_the_chance() {
        let made = uuid7(0x0190_163d_8694, &[0xff; 10]);
        assert_eq!(made[..8], [0x01, 0x90, 0x16, 0x3d, 0x86, 0x94, 0x7f, 0xff]);
        assert_eq!(made[8], 0xbf);
    }

    #[test]
    fn hashed_together_or_alone_is_the_same() {
        let bodies: Vec<Vec<u8>> = [0, 1, 127, 128, 129, 1000, JOIN_UP_TO, JOIN_UP_TO + 1]
            .iter()
            .map(|&n| vec![7; n])
            .collect();
        let contents: Vec<Content<'_>> = bodies
            .iter()
            .map(|body| Content {
                routing_key: b"a.key",
                content_type: b"text/plain",
                content_encoding: b"",
                body,
            })
            .collect();
        let together = content_hashes(&contents);
        for (number, content) in contents.iter().enumerate() {
            let kept = &together[CONTENT_KEPT * number..CONTENT_KEPT * (number + 1)];
            assert_eq!(kept, &content.hash()[..CONTENT_KEPT]);
        }
    }
}
