//! `throng store entity`: lists stored entities, exports one as bytes, and removes one that cannot be loaded.
//!
//! Entities are read as they are stored, without the program's types. Only `forget` opens the store for writing, so
//! the others work beside a node.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use throng_durable::{Export, Record, Records};

use super::show::ByteFormat;
use super::{DATA_FILE, DATABASES_MAX, StoreError, print};

#[derive(Debug, Args)]
pub(super) struct EntityArgs {
    #[command(subcommand)]
    command: EntityCommand,
}

#[derive(Debug, Subcommand)]
enum EntityCommand {
    /// Print the kinds of entities with their numbers, or the entities of a kind, one per line
    List(ListArgs),
    /// Print everything that is stored of an entity, damaged or not, without decoding it
    Export(ExportArgs),
    /// Remove everything that is stored of an entity, whether it can be loaded or not
    Forget(ForgetArgs),
}

/// Prints `KEY`, tab, version of the state, tab, its length in bytes; or `KEY`, tab, the damage.
#[derive(Debug, Args)]
struct ListArgs {
    /// Directory of the store, such as `throng-data`
    path: PathBuf,

    /// Kind of the entities; without it, the kinds are listed
    kind: Option<String>,

    /// Print only entities whose keys begin with this prefix
    #[arg(long, value_name = "KEY", default_value = "")]
    prefix: String,

    /// Print only entities whose records are damaged
    #[arg(long)]
    damaged: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Prints `state`, tab, the bytes; for each cell `cell`, tab, its map, tab, its key, tab, its value; and `pinned` if the
/// entity is. Checksums are not verified.
#[derive(Debug, Args)]
struct ExportArgs {
    /// Directory of the store
    path: PathBuf,

    /// Kind of the entity
    kind: String,

    /// Key of the entity
    key: String,

    #[command(flatten)]
    show: ByteFormat,
}

/// Removes an entity for good: export it first. The store must not be in use.
#[derive(Debug, Args)]
struct ForgetArgs {
    /// Directory of the store
    path: PathBuf,

    /// Kind of the entity
    kind: String,

    /// Key of the entity
    key: String,
}

/// Entities that are read at once.
const PAGE: usize = 1_000;

impl EntityArgs {
    pub(super) fn run(self) -> Result<(), StoreError> {
        match self.command {
            EntityCommand::List(list) => list.run(),
            EntityCommand::Export(export) => export.run(),
            EntityCommand::Forget(forget) => forget.run(),
        }
    }
}

impl ListArgs {
    fn run(self) -> Result<(), StoreError> {
        let records = Records::of(super::open(&self.path)?);
        let mut out = BufWriter::new(io::stdout().lock());
        let listed = match &self.kind {
            Some(kind) => self.list(&records, kind, &mut out)?,
            None => records.kinds()?.iter().try_for_each(|(kind, count)| {
                let shown = json!({ "kind": kind, "entities": count });
                self.line(&mut out, &shown, format_args!("{}\t{count}", kind.escape_debug()))
            }),
        };
        match listed.and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(StoreError::Print(error))
            }
            _ => Ok(()),
        }
    }

    fn list(
        &self,
        records: &Records,
        kind: &str,
        out: &mut impl Write,
    ) -> Result<io::Result<()>, StoreError> {
        let mut after = None;
        loop {
            let page = records.list(kind, &self.prefix, after.as_deref(), PAGE)?;
            for Record { key, state, .. } in &page {
                let shown = key.escape_debug();
                let written = match state {
                    Ok(_) if self.damaged => Ok(()),
                    Ok((version, bytes)) => {
                        let json = json!({ "key": key, "version": version, "bytes": bytes });
                        self.line(out, &json, format_args!("{shown}\t{version}\t{bytes}"))
                    }
                    Err(damage) => {
                        let json = json!({ "key": key, "damage": damage });
                        self.line(out, &json, format_args!("{shown}\t{damage}"))
                    }
                };
                if written.is_err() {
                    return Ok(written);
                }
            }
            match page.into_iter().last() {
                Some(last) => after = Some(last.key),
                None => return Ok(Ok(())),
            }
        }
    }

    fn line(
        &self,
        out: &mut impl Write,
        json: &Value,
        text: std::fmt::Arguments<'_>,
    ) -> io::Result<()> {
        if self.json { writeln!(out, "{json}") } else { writeln!(out, "{text}") }
    }
}

impl ExportArgs {
    fn run(self) -> Result<(), StoreError> {
        if !self.path.join(DATA_FILE).exists() {
            return Err(StoreError::NoStore(self.path));
        }
        // The bytes of a damaged record are what is left of it.
        let options = throng_store::Store::options().databases_max(DATABASES_MAX);
        let store = options.read_only(true).verify_reads(false).open(&self.path);
        let records = Records::of(store.map_err(StoreError::Open)?);
        let Some(Export { state, cells, is_pinned, .. }) = records.export(&self.kind, &self.key)?
        else {
            return Err(StoreError::NoEntity { kind: self.kind, key: self.key });
        };
        let (state, show) = (state?, self.show);
        let mut lines = Vec::new();
        let mut line = |parts: &[&[u8]]| {
            lines.extend_from_slice(&parts.join(&b'\t'));
            lines.push(b'\n');
        };
        let mut shown = Vec::new();
        if !state.is_empty() {
            line(&[b"state", &show.bytes(&state)]);
        }
        for cell in cells {
            let value = cell.value?;
            line(&[b"cell", cell.map.as_bytes(), &show.bytes(&cell.key), &show.bytes(&value)]);
            shown.push(json!({
                "map": cell.map,
                "key": show.text(&cell.key),
                "value": show.text(&value),
            }));
        }
        if is_pinned {
            line(&[b"pinned"]);
        }
        if show.json {
            let export = json!({ "state": show.text(&state), "cells": shown, "pinned": is_pinned });
            return print(&format!("{export}\n"));
        }
        match io::stdout().lock().write_all(&lines) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(StoreError::Print(error))
            }
            _ => Ok(()),
        }
    }
}

impl ForgetArgs {
    fn run(self) -> Result<(), StoreError> {
        if !self.path.join(DATA_FILE).exists() {
            return Err(StoreError::NoStore(self.path));
        }
        let options = throng_store::Store::options().databases_max(DATABASES_MAX);
        let store = options.open(&self.path).map_err(StoreError::Open)?;
        if !Records::of(store).forget(&self.kind, &self.key)? {
            return Err(StoreError::NoEntity { kind: self.kind, key: self.key });
        }
        print(&format!("forgotten: {} {}\n", self.kind, self.key.escape_debug()))
    }
}
