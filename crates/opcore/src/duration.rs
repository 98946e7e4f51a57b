//! Durations in specs and statuses, as users write them: `30s`, `5m`, `1h30m`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in a spec or a status, written `30s`, `5m` or `1h30m`.
///
/// # Guarantees
///
/// What it prints, it reads back as the same. The schema refuses at admission whatever it cannot read, and accepts
/// whatever it prints: sums and products go no further than that. Otherwise a single long one would make a whole status
/// unacceptable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

/// What the API server accepts: whole numbers with units, the larger ones first.
const PATTERN: &str = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$";

/// The longest that fits the pattern, about 114 years.
const LONGEST: Duration = Duration::from_secs(999_999 * 3600 + 3599);

impl Span {
    /// This many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(if seconds < LONGEST.as_secs() { seconds } else { LONGEST.as_secs() }))
    }

    /// The time between two moments; zero if the second is not later.
    pub fn between(earlier: Timestamp, later: Timestamp) -> Self {
        Duration::try_from(later.duration_since(earlier)).unwrap_or_default().into()
    }

    /// The same duration as a type of the standard library.
    pub const fn as_duration(self) -> Duration {
        self.0
    }

    /// The time that is this long after `moment`.
    pub fn after(self, moment: Timestamp) -> Timestamp {
        moment.checked_add(self.0).unwrap_or(Timestamp::MAX)
    }

    /// This duration times `factor`. A factor that makes no sense changes nothing.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Duration::try_from_secs_f64(self.0.as_secs_f64() * factor).map_or(self, Self::from)
    }

    /// Rounded to whole seconds: finer times make a status harder to read.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self::from_secs(self.0.as_secs() + u64::from(self.0.subsec_millis() >= 500))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration.min(LONGEST))
    }
}

impl std::ops::Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.0.saturating_add(other.0).into()
    }
}

impl std::ops::Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (millis.into(), "ms")];
        let words = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .fold(String::new(), |words, (count, unit)| words + &count.to_string() + unit);
        f.pad(if words.is_empty() { "0s" } else { &words })
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed: SignedDuration =
            text.parse().map_err(|_| format!("{text:?} is not a duration; use one such as 30s, 5m or 1h30m"))?;
        Duration::try_from(parsed)
            .map(Self::from)
            .map_err(|_| format!("{text:?} is negative; use a duration such as 30s or 5m"))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 2, "maxLength": 32, "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_people_do() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("1h30m", 5400), ("90m", 5400), ("0s", 0)] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span::from_secs(seconds), "{text}");
            assert_eq!(span.to_string().parse(), Ok(span), "{text} as {span}");
        }
        assert_eq!(Span::from(Duration::from_millis(61_250)).to_string(), "1m1s250ms");
    }

    #[test]
    fn no_sum_and_no_product_is_longer_than_the_schema_accepts() {
        let longest: Span = "999999h59m59s".parse().unwrap();
        let from_text = "999999h999999m999999s999999ms".parse().unwrap();
        let between = Span::between(Timestamp::MIN, Timestamp::MAX);
        let spans = [longest + longest, longest.scaled(1000.0), from_text, between, Span::from_secs(u64::MAX)];
        for span in spans.into_iter().chain([Span::from(Duration::MAX), Span::from(Duration::MAX).rounded()]) {
            assert_eq!(span, longest);
            assert_eq!((span.to_string().as_str(), span.to_string().parse()), ("999999h59m59s", Ok(span)));
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in ["soon", "5", "", "-5m"] {
            assert!(text.parse::<Span>().unwrap_err().contains("5m"), "{text}");
        }
    }

    #[test]
    fn scaling_survives_every_factor() {
        let span = Span::from_secs(300);
        assert_eq!(span.scaled(2.0), Span::from_secs(600));
        assert_eq!(span.scaled(0.5), Span::from_secs(150));
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(span.scaled(odd), span);
        }
    }
}
