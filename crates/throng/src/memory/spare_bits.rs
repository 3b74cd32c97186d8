//! Room for a generation beside a pointer: the bits that an address of at most 48 bits, aligned to
//! 64 bytes, leaves free.
//!
//! Words that hold both (see `mailbox`) rely on this for each cell and each message, without a
//! check. The check is made when memory for them comes from the system, and once before a runtime
//! starts: on a system without such memory, the start fails and reports the reason.

use std::fmt;
use std::ptr::NonNull;

/// Bits of a word that the address in it leaves free.
pub(crate) const SPARE_BITS: usize = 0xFFFF_0000_0000_003F;
/// Low bits of an address, which its alignment leaves free.
const ALIGNMENT_MASK: usize = 0x3F;

/// Error of memory whose address leaves no room for a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoSpareBits {
    /// Address without spare bits: that of the memory's first byte, or else of its last.
    pub(crate) address: usize,
}

impl fmt::Display for NoSpareBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory at {:#x} has more than 48 bits of address, and mailboxes have no room for more: \
             run without tagged pointers (HWASan, MTE, LAM) and without memory beyond 47 bits \
             (five levels of pages)",
            self.address
        )
    }
}

/// Checks that a word that also holds a generation can point to all of this memory, cut at
/// multiples of 64 bytes: that its addresses have at most 48 bits.
pub(crate) fn check_spare_bits(memory: *mut u8, bytes: usize) -> Result<(), NoSpareBits> {
    let (first, last) = (memory.addr(), memory.addr().saturating_add(bytes.saturating_sub(1)));
    let beyond = |address: usize| address & SPARE_BITS & !ALIGNMENT_MASK != 0;
    match [first, last].into_iter().find(|&address| beyond(address)) {
        Some(address) => Err(NoSpareBits { address }),
        None => Ok(()),
    }
}

/// Checks memory for cells and messages as it comes from the system.
///
/// # Panics
/// If an address in it has no spare bits. A runtime does not start on a system whose memory has no
/// spare bits; such memory that came later would mix up processes.
#[inline]
pub(crate) fn require_spare_bits(memory: NonNull<u8>, bytes: usize) {
    #[cold]
    fn refuse(error: NoSpareBits) -> ! {
        panic!("{error}");
    }
    if let Err(error) = check_spare_bits(memory.as_ptr(), bytes) {
        refuse(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn memory_beyond_48_bits_is_refused_by_its_first_byte_and_by_its_last() {
        let check = |address: usize, bytes| {
            check_spare_bits(ptr::without_provenance_mut(address), bytes).map_err(|e| e.address)
        };
        assert_eq!(check(0x7FFF_FFFF_F000, 4096), Ok(()));
        assert_eq!(check(0xFFFF_FFFF_F010, 0xFF0), Ok(()));
        assert_eq!(check(0xFFFF_FFFF_F000, 4097), Err(1 << 48), "a mapping that ends beyond");
        assert_eq!(check(1 << 56, 64), Err(1 << 56), "five levels of pages");
        assert_eq!(check(0x2A00_7FFF_0000_0000, 64), Err(0x2A00_7FFF_0000_0000), "a tag");
        assert_eq!(check(usize::MAX - 63, 4096), Err(usize::MAX - 63));
    }

    #[test]
    #[should_panic(expected = "0x100000000000000 has more than 48 bits")]
    fn memory_that_would_mix_up_processes_is_never_used() {
        let memory = ptr::without_provenance_mut(1 << 56);
        require_spare_bits(NonNull::new(memory).expect("not null"), 64);
    }
}
