//! Open files of a node: the limit of the system, divided so that connections never take the files that the store
//! needs.
//!
//! ```text
//! ├── open at the start ──┼── RESERVE ──┼── dashboard ──┼── connections of the service ──┤ limit of the system
//!                          store, admin    and refusals      and refusals
//!                          socket, files
//! ```

use crate::http::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::dashboard;

/// Maximum numbers of connections of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub(crate) service: usize,
    pub(crate) dashboard: usize,
}

/// The limit of open files leaves no room for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit of open files is {limit}, and a node needs {needed} at least; raise it by `ulimit -n`, or by \
     LimitNOFILE of a systemd unit"
)]
pub struct TooFewFiles {
    limit: usize,
    needed: usize,
}

/// Raises the limit of open files to its maximum, and divides it. Serves fewer connections than `wanted` if the limit
/// has no room for them, and logs a warning.
///
/// # Errors
/// The limit has no room for [`SERVICE_MIN`] connections.
pub(crate) fn divide(wanted: usize) -> Result<Connections, TooFewFiles> {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let all = Connections { service: wanted, dashboard: dashboard::CONNECTIONS_MAX };
    // `None` means unlimited.
    let Some(limit) = limit_max() else { return Ok(all) };
    let connections = share(limit, open().unwrap_or(OPEN_UNKNOWN), all)?;
    if connections.service < wanted {
        tracing::warn!(
            files = limit,
            connections_max = connections.service,
            wanted,
            "the limit of open files is too low for --connections-max, so fewer connections are served; raise it by \
             `ulimit -n`, or by LimitNOFILE of a systemd unit"
        );
    }
    Ok(connections)
}

/// Returns the limit of open files; `None` if there is none.
pub(crate) fn limit_max() -> Option<usize> {
    let files = getrlimit(Resource::Nofile).current?;
    Some(usize::try_from(files).unwrap_or(usize::MAX))
}

/// Returns the number of open files of this program, where the system tells.
pub(crate) fn open() -> Option<usize> {
    // The directory itself is open meanwhile.
    Some(std::fs::read_dir("/dev/fd").ok()?.count().saturating_sub(1))
}

/// Divides a limit of which `open` files are taken.
fn share(limit: usize, open: usize, wanted: Connections) -> Result<Connections, TooFewFiles> {
    let taken = open + RESERVE;
    let free = limit.saturating_sub(taken);
    let dashboard = (free / 8).clamp(DASHBOARD_MIN, wanted.dashboard);
    let rest = free.saturating_sub(files_of(dashboard));
    let service = fitting(rest).min(wanted.service);
    if service < SERVICE_MIN.min(wanted.service) {
        let needed = taken + files_of(DASHBOARD_MIN) + files_of(SERVICE_MIN);
        return Err(TooFewFiles { limit, needed });
    }
    Ok(Connections { service, dashboard })
}

/// Returns the number of open files that so many connections take.
fn files_of(connections_max: usize) -> usize {
    Limits { connections_max, ..Limits::default() }.files_max()
}

/// Returns the maximum number of connections that take so many open files.
fn fitting(files: usize) -> usize {
    // Eight of nine files are connections while refusals grow with them.
    let at_most = files.saturating_sub(files_of(0));
    let at_least = (at_most / 9 * 8).saturating_sub(files_of(0));
    (at_least..=at_most).rev().find(|connections| files_of(*connections) <= files).unwrap_or(0)
}

/// Files that are kept free for segments of the log, checkpoints, clients of the admin socket, and certificates.
const RESERVE: usize = 40;

/// Files that are open at the start, where the system does not tell.
const OPEN_UNKNOWN: usize = 64;

/// Least number of connections of a node.
const SERVICE_MIN: usize = 8;

/// Least number of connections of a dashboard: a page loads its files over six.
const DASHBOARD_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Connections = Connections { service: 10_000, dashboard: 64 };

    #[test]
    fn connections_and_refusals_leave_the_reserve_under_every_limit() {
        for open in [0, 25, 64] {
            for limit in (0..2_000).chain([10_000, 10_300, 10_400, 20_000, 1 << 20]) {
                match share(limit, open, WANTED) {
                    Ok(connections) => {
                        let Connections { service, dashboard } = connections;
                        let taken = open + files_of(service) + files_of(dashboard);
                        assert!(taken + RESERVE <= limit, "{limit}: {connections:?}");
                        assert!(service >= SERVICE_MIN, "{limit}");
                    }
                    Err(TooFewFiles { needed, .. }) => assert!(limit < needed, "{limit}"),
                }
            }
            assert_eq!(share(1 << 20, open, WANTED), Ok(WANTED));
        }
        // Few connections need few files.
        let one = Connections { service: 1, dashboard: 64 };
        assert_eq!(share(1024, 25, one).map(|connections| connections.service), Ok(1));
    }

    #[test]
    fn the_open_files_of_this_program_are_known() {
        let before = open().unwrap();
        assert!(before >= 3, "{before}");
    }
}
