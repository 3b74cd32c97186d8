//! [`Guard`]: a rule of the protocol that a test may take out, to show that its checks notice.

/// A rule without which acknowledged records are lost, or refused ones count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A record counts only right behind the owner's last one.
    RecordFollows,
    /// An acknowledgement counts only at the position behind the last known one.
    PositionFits,
    /// After an append that failed, acknowledgements of later ones prove nothing.
    LaterAcksVoid,
    /// A claim is read up to its own position before its author serves.
    ClaimIsRead,
    /// An owner that finds another one's claim leaves, whatever it has claimed itself.
    TakeoverLeaves,
    /// After a failure the owner claims again, so that copies of its records under way cannot count.
    ClaimsAgain,
    /// A lease counts from before its renewal went out.
    LeaseCountsFromSending,
    /// A node is declared dead later than its lease ends by any clock.
    ExpiryWaitsLonger,
    /// An expiry counts only behind the renewal that it names.
    ExpiryNamesRenewal,
    /// Nobody is declared dead by a node that hears nothing itself.
    SilenceIsNoDeath,
    /// After a silence of the log, that of others is counted anew.
    SilenceStartsAnew,
    /// A plan counts only behind the plan that it names.
    PlanFollowsPlan,
    /// A name belongs to one member.
    NameOnce,
    /// A member that has ended does not come back.
    EndIsFinal,
    /// A node stops believing before it says that it leaves.
    LeaveEndsLease,
}

#[cfg(test)]
thread_local! {
    pub(crate) static OUT: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

/// Whether a guard holds, as always outside of the tests of its own.
#[cfg(test)]
pub(crate) fn holds(guard: Guard) -> bool {
    OUT.get() != Some(guard)
}

/// Whether a guard holds, as always outside of the tests of its own.
#[cfg(not(test))]
pub(crate) fn holds(_: Guard) -> bool {
    true
}
