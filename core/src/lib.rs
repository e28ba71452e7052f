//! The data path of Isthmus, a batch at a time and without a Python object a message.
//!
//! Whatever is odd (malformed, cut, big, handed out before) is left to the Python twins: functions
//! stop before such a message and say so. Bytes from sockets are read through checked slices.
#![forbid(unsafe_code)]

pub mod amqp;
pub mod columns;
pub mod field_table;
pub mod identity;
pub mod properties;
#[cfg(feature = "python")]
mod python;
