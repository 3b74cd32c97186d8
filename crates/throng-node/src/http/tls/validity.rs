//! The time of validity of a certificate, read from its DER encoding.
//!
//! ```text
//! Certificate  SEQUENCE { tbsCertificate  SEQUENCE {
//!                  [0] version (may be missing), serialNumber, signature, issuer,
//!                  validity  SEQUENCE { notBefore, notAfter }, … }, … }
//! ```
//!
//! The server uses the time to report a certificate that no client would accept. Nothing is verified here.

/// Seconds since 1970 at which a certificate becomes valid, and at which it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    /// Reads the validity of a certificate; `None` if the certificate has another form.
    pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
        let mut certificate = Der(Der(certificate).next_of(SEQUENCE)?);
        let mut fields = Der(certificate.next_of(SEQUENCE)?);
        if fields.0.first() == Some(&VERSION) {
            fields.next()?;
        }
        // The serial number, the algorithm of the signature, and the issuer.
        for _ in 0..3 {
            fields.next()?;
        }
        let mut validity = Der(fields.next_of(SEQUENCE)?);
        let from = time(validity.next()?)?;
        let until = time(validity.next()?)?;
        Some(Validity { from, until })
    }

    /// Returns the reason for which the certificate is out of date at `now`.
    pub(super) fn problem_at(self, now: i64) -> Option<String> {
        if now > self.until {
            Some(format!("expired {} ago", span(now - self.until)))
        } else if now < self.from {
            Some(format!("becomes valid only in {}", span(self.from - now)))
        } else {
            None
        }
    }
}

/// Returns a length of time for people.
fn span(seconds: i64) -> String {
    match seconds {
        ..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / DAY),
    }
}

/// Elements of DER that follow each other.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// Takes the next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let [tag, length, rest @ ..] = self.0 else { return None };
        let (length, rest) = match *length {
            short @ ..0x80 => (usize::from(short), rest),
            long => {
                let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                if digits.len() > 4 {
                    return None;
                }
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// Takes the next element if it has the tag, and returns its content.
    fn next_of(&mut self, wanted: u8) -> Option<&'d [u8]> {
        self.next().and_then(|(tag, content)| (tag == wanted).then_some(content))
    }
}

/// Parses a time in the only forms that a certificate may have: `YYMMDDHHMMSSZ` and `YYYYMMDDHHMMSSZ`.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let digits = text.strip_suffix(b"Z").filter(|text| text.iter().all(u8::is_ascii_digit))?;
    let year_digits = match (tag, digits.len()) {
        (UTC_TIME, 12) => 2,
        (GENERALIZED_TIME, 14) => 4,
        _ => return None,
    };
    let number = |digits: &[u8]| digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    let (year, rest) = digits.split_at(year_digits);
    let year = match number(year) {
        short @ ..50 if tag == UTC_TIME => 2000 + short,
        short if tag == UTC_TIME => 1900 + short,
        year => year,
    };
    let mut pairs = rest.chunks(2).map(number);
    let mut next = || pairs.next();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    Some(days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second)
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let before =
        |year: i64| year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month = usize::try_from(month).ok()?.checked_sub(1)?;
    let in_month = *months.get(month)?;
    if !(1..=in_month).contains(&day) {
        return None;
    }
    let in_year: i64 = months[..month].iter().sum();
    Some(before(year - 1) - before(1969) + in_year + day - 1)
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DAY: i64 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20380119031408Z", Some(2_147_483_648)),
            (GENERALIZED_TIME, "21000228000000Z", Some(4_107_456_000)),
            (GENERALIZED_TIME, "21000229000000Z", None),
            (GENERALIZED_TIME, "20381301000000Z", None),
            (GENERALIZED_TIME, "20380001000000Z", None),
            (GENERALIZED_TIME, "700101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "7001010000+0Z", None),
        ] {
            assert_eq!(time((tag, text.as_bytes())), seconds, "{text}");
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        let validity = Validity { from: 1000, until: 2000 };
        assert_eq!((validity.problem_at(1000), validity.problem_at(2000)), (None, None));
        let problem = |now| validity.problem_at(now).unwrap();
        assert_eq!(problem(2000 + 5 * DAY), "expired 5 days ago");
        assert_eq!(problem(2060), "expired 1 minutes ago");
        assert_eq!(problem(1000 - 3 * 3600), "becomes valid only in 3 hours");
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
            for byte in &mut bytes {
                // Tags and short lengths, so that the reader gets further than the first bytes.
                *byte = *rng.choice(&[SEQUENCE, VERSION, UTC_TIME, 2, 0x82, 30, *byte]).unwrap();
            }
            let _ = Validity::of(&bytes);
        }
    }
}
