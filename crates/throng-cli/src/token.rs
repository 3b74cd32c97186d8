//! `throng admin-token`: draws another token for the dashboard of a node, which may be running.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use throng_node::args::DashboardArgs;
use throng_node::{DashboardAddress, TokenFileError, dashboard_url, replace_token};

/// Arguments of `throng admin-token`.
#[derive(Debug, Args)]
pub struct AdminTokenArgs {
    /// Data directory of the node
    #[arg(long, value_name = "DIRECTORY", env = "THRONG_DATA", default_value = "./throng-data")]
    data: PathBuf,

    #[command(flatten)]
    dashboard: DashboardArgs,
}

/// Error of `throng admin-token`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    File(#[from] TokenFileError),
    #[error("the admin token was replaced and cannot be printed; run this command again")]
    Print(#[source] io::Error),
}

impl AdminTokenArgs {
    /// Replaces the token and prints the new one: as a URL, if the address of the dashboard is given.
    ///
    /// # Errors
    /// The data directory cannot be written, or the token cannot be printed.
    pub(crate) fn run(self) -> Result<(), TokenError> {
        let token = replace_token(&self.data)?;
        let line = match self.dashboard.address() {
            DashboardAddress::At(address) if address.port() != 0 => dashboard_url(address, &token),
            // Another program may listen on the default address, and its page would get the token.
            _ => token,
        };
        writeln!(io::stdout().lock(), "{line}").map_err(TokenError::Print)
    }
}
