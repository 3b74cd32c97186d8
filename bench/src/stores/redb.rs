//! redb with its default options.

use std::io;
use std::path::Path;

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Engine, OpenOptions, Read, View, Visit};

const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

pub(crate) struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        Ok(self.database.begin_read()?.open_table(ENTRIES)?)
    }
}

impl Engine for Redb {
    type Reader<'e> = Reader<'e>;

    fn open(directory: &Path, options: OpenOptions) -> io::Result<Redb> {
        let database =
            Database::create(directory.join("entries.redb")).map_err(io::Error::other)?;
        let durability = if options.durable { Durability::Immediate } else { Durability::None };
        let redb = Redb { database, durability };
        if redb.table().is_err() {
            // The empty commit creates the table, which readers require.
            redb.commit::<&[u8], &[u8]>(&[])?;
        }
        Ok(redb)
    }

    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()> {
        let put_all = || -> Result<(), redb::Error> {
            let mut txn = self.database.begin_write()?;
            txn.set_durability(self.durability)?;
            let mut table = txn.open_table(ENTRIES)?;
            for (key, value) in entries {
                table.insert(key.as_ref(), value.as_ref())?;
            }
            drop(table);
            Ok(txn.commit()?)
        };
        put_all().map_err(io::Error::other)
    }

    fn groups(&self) -> bool {
        false
    }

    fn reader(&self, view: View) -> io::Result<Reader<'_>> {
        let frozen = match view {
            View::Latest => None,
            View::Frozen => Some(self.table().map_err(io::Error::other)?),
        };
        Ok(Reader { redb: self, frozen })
    }
}

/// Reads in a transaction that lives as long as the reader, or in a new transaction for each read.
pub(crate) struct Reader<'e> {
    redb: &'e Redb,
    frozen: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

impl Reader<'_> {
    fn within<R>(
        &self,
        read: impl FnOnce(&ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<R, redb::Error>,
    ) -> io::Result<R> {
        match &self.frozen {
            Some(table) => read(table),
            None => self.redb.table().and_then(|table| read(&table)),
        }
        .map_err(io::Error::other)
    }
}

impl Read for Reader<'_> {
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        self.within(|table| {
            let value = table.get(key)?;
            Ok(visit(value.as_ref().map(|value| value.value())))
        })
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut visit: impl Visit) -> io::Result<u64> {
        self.within(|table| {
            let mut rows = 0;
            for entry in table.range(from..)?.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
                let (key, value) = entry?;
                visit(key.value(), value.value());
                rows += 1;
            }
            Ok(rows)
        })
    }
}
