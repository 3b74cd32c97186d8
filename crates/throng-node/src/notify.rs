//! Messages to the supervisor that started this program, by systemd's protocol: a datagram to the
//! Unix socket that `NOTIFY_SOCKET` names.
//!
//! ```text
//! READY=1      the node serves
//! STOPPING=1   the node has received its first stop signal
//! ```
//!
//! Invariant: a message that cannot be sent is logged and does not change the life of the node.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixDatagram;

/// Message to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The node serves.
    Ready,
    /// The node stops.
    Stopping,
}

impl Notice {
    /// Sends the message, if a supervisor waits for it.
    pub(crate) fn send(self) {
        let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())
        else {
            return;
        };
        if let Err(error) = self.send_to(&socket) {
            tracing::warn!(%error, ?socket, notice = ?self, "cannot notify the supervisor");
        }
    }

    fn send_to(self, socket: &OsStr) -> io::Result<()> {
        let message: &[u8] = match self {
            Notice::Ready => b"READY=1\n",
            Notice::Stopping => b"STOPPING=1\n",
        };
        let sender = UnixDatagram::unbound()?;
        // A supervisor that does not read must not stop the node.
        sender.set_nonblocking(true)?;
        match abstract_name(socket) {
            Some(name) => send_to_abstract(&sender, message, &name)?,
            None => sender.send_to(message, socket)?,
        };
        Ok(())
    }
}

/// Returns the name in Linux's abstract namespace, which is written with an `@` in place of a zero
/// byte.
fn abstract_name(socket: &OsStr) -> Option<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let name = socket.as_bytes().strip_prefix(b"@")?;
    Some(OsString::from_vec(name.to_vec()))
}

#[cfg(target_os = "linux")]
fn send_to_abstract(sender: &UnixDatagram, message: &[u8], name: &OsStr) -> io::Result<usize> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::SocketAddr;
    sender.send_to_addr(message, &SocketAddr::from_abstract_name(name.as_bytes())?)
}

#[cfg(not(target_os = "linux"))]
fn send_to_abstract(_: &UnixDatagram, _: &[u8], _: &OsStr) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
