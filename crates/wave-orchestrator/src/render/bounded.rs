//! Reads YAML as JSON, up to a size. An alias repeats what it stands for, so that a short text can say more than a process
//! has memory for.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How many bytes a byte of text may become.
const GROWTH: usize = 16;
/// How many bytes any text may become.
const ALWAYS: usize = 64 * 1024;
/// What a value counts beside the bytes of its text.
const EACH: usize = 8;

/// How much more may be read.
#[derive(Debug)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    /// The budget for a text of this length.
    pub(super) fn of(length: usize) -> Self {
        Self(Cell::new(length.saturating_mul(GROWTH).saturating_add(ALWAYS)))
    }

    /// Whether the text says more than may be read.
    pub(super) fn is_exceeded(&self) -> bool {
        self.0.get() == 0
    }

    fn spend<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.0.set(self.0.get().saturating_sub(bytes.saturating_add(EACH)));
        if self.is_exceeded() { Err(E::custom("its aliases stand for too much")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for &Budget {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Budget {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value that JSON has")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.spend(0).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.spend(0).map(|()| value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.spend(0).map(|()| value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.spend(0).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len()).map(|()| value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.spend(0).map(|()| Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.spend(key.len())?;
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}
