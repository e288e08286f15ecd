//! Pages, prefix tree and snapshots together: finding what of a prompt is cached, giving pages to
//! sequences, and keeping what they leave.
//!
//! A prefix of `n` tokens can be reused when every cache group still has the pages that row `n` and
//! later ones see, and, in models with recurrent layers, a snapshot was taken after exactly `n`
//! rows. The page that holds row `n - 1` is copied when row `n` falls into it, so that reuse is
//! exact to the token and nobody writes a page that another sequence can see.
//!
//! Pages may be given up while steps that read or write them are in flight: whoever takes them next
//! writes in a later step, and steps run in order.

use std::sync::Arc;

use infr_backend::PageTable;
use infr_graph::CacheGroup;

use crate::event::ReuseStop;
use crate::pages::{Pool, first_visible};
use crate::prefix::{Match, NodeId, Tree};
use crate::slots::Snapshots;
use crate::stats::PageStats;

/// What a sequence holds of the cache.
#[derive(Debug)]
pub(crate) struct SeqPages {
    /// One table per cache group.
    pub(crate) tables: Vec<Arc<PageTable>>,
    /// The node of the last full page that is in the prefix tree.
    tip: NodeId,
    /// Full pages on the way to `tip`.
    registered: u32,
}

/// A page to be copied before the sequence's first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) group: u16,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// What a sequence starts with.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) pages: SeqPages,
    /// Tokens that need not be computed.
    pub(crate) cached: u32,
    /// Why no more.
    pub(crate) reuse: ReuseStop,
    /// Copies to be made.
    pub(crate) copies: Vec<Copy>,
    /// The recurrent states to start from.
    pub(crate) snapshot: Option<Arc<Vec<u8>>>,
}

/// What a prompt is looked up with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) salt: u64,
    pub(crate) tokens: &'a [u32],
    /// Whether cached tokens may be used.
    pub(crate) reuse: bool,
}

/// A prefix that can be reused.
struct Hit {
    cached: u32,
    /// Per group, the page whose first rows are copied, with the rest of the prefix.
    sources: Vec<Option<u32>>,
    snapshot: Option<Arc<Vec<u8>>>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    page_len: u32,
    pools: Vec<Pool>,
    tree: Tree,
    pub(crate) snapshots: Snapshots,
    /// The model has recurrent layers.
    recurrent: bool,
    /// Keep what sequences leave.
    keep: bool,
}

impl Cache {
    pub(crate) fn new(
        groups: &[CacheGroup],
        pages: &[u32],
        page_len: u32,
        snapshots: Option<Snapshots>,
        keep: bool,
    ) -> Cache {
        let pools = groups.iter().zip(pages).map(|(g, &n)| Pool::new(g.reach, n)).collect();
        let recurrent = snapshots.is_some();
        let snapshots = snapshots.unwrap_or_default();
        Cache { page_len, pools, tree: Tree::default(), snapshots, recurrent, keep }
    }

    pub(crate) fn page_len(&self) -> u32 {
        self.page_len
    }

    pub(crate) fn totals(&self) -> impl Iterator<Item = u32> {
        self.pools.iter().map(Pool::total)
    }

    /// Pages that can be taken, per group.
    pub(crate) fn available(&self) -> impl Iterator<Item = u32> {
        self.pools.iter().map(Pool::available)
    }

    pub(crate) fn stats(&self) -> Vec<PageStats> {
        self.pools.iter().map(Pool::stats).collect()
    }

    /// Starts a sequence with what is cached of its tokens. At least the last one is left to be
    /// computed. `None` when the page to copy to cannot be had.
    pub(crate) fn begin(&mut self, lookup: Lookup<'_>) -> Option<Begin> {
        let found = self.tree.follow(lookup.salt, lookup.tokens, self.page_len as usize);
        let none = Hit { cached: 0, sources: vec![None; self.pools.len()], snapshot: None };
        let (hit, reuse) = if lookup.reuse && self.keep {
            let hit = self.best(&found, lookup.tokens).unwrap_or(none);
            let reuse = self.why(&found, lookup.tokens, hit.cached);
            (hit, reuse)
        } else {
            (none, ReuseStop::NotUsed)
        };
        let full = (hit.cached / self.page_len) as usize;
        let tip = found.path[full];
        self.tree.hold(tip);
        let mut pages = SeqPages { tables: Vec::new(), tip, registered: full as u32 };
        for (group, pool) in self.pools.iter_mut().enumerate() {
            let seen = first_visible(pool.reach(), hit.cached) / self.page_len;
            let mut table = vec![PageTable::NONE; full];
            let seen_pages = table.iter_mut().zip(&found.path[1..]).skip(seen as usize);
            for (entry, &node) in seen_pages {
                *entry = self.tree.page(node, group).expect("a hit has the pages that are seen");
                pool.retain(*entry);
            }
            pages.tables.push(Arc::new(PageTable(table)));
        }
        let mut copies = Vec::new();
        for (group, source) in hit.sources.iter().enumerate() {
            let Some(from) = *source else { continue };
            // Touched, the source is taken itself only when it is the last; then its rows stay.
            self.pools[group].touch(from);
            let Some(to) = self.take(group) else {
                self.end(pages);
                return None;
            };
            Arc::make_mut(&mut pages.tables[group]).0.push(to);
            if to != from {
                copies.push(Copy { group: group as u16, from, to });
            }
        }
        let (cached, snapshot) = (hit.cached, hit.snapshot);
        Some(Begin { pages, cached, reuse, copies, snapshot })
    }

    /// The longest prefix that all groups and the recurrent layers can go on from.
    fn best(&mut self, found: &Match, tokens: &[u32]) -> Option<Hit> {
        let most = tokens.len() as u32 - 1;
        if self.recurrent {
            let ends = found.path.iter().enumerate().rev();
            let ends: Vec<(u32, NodeId)> =
                ends.map(|(i, &node)| (i as u32 * self.page_len, node)).collect();
            for (start, node) in ends {
                let rest = &tokens[start as usize..];
                for (cached, id) in self.snapshots.after(node, start, rest, most) {
                    if let Some(sources) = self.sources(found, tokens, cached) {
                        let snapshot = Some(self.snapshots.get(id));
                        return Some(Hit { cached, sources, snapshot });
                    }
                }
            }
            return None;
        }
        let full = (found.path.len() as u32 - 1) * self.page_len;
        let partial = found.partial.iter().map(|&(_, n)| (full + n).min(most));
        let whole = (1..found.path.len() as u32).rev().map(|i| (i * self.page_len).min(most));
        let mut lengths: Vec<u32> = partial.chain(whole).filter(|&n| n > 0).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        lengths.into_iter().find_map(|cached| {
            let sources = self.sources(found, tokens, cached)?;
            Some(Hit { cached, sources, snapshot: None })
        })
    }

    /// Per group the page to copy for a prefix of `cached` tokens; `None` when a page is missing.
    fn sources(&self, found: &Match, tokens: &[u32], cached: u32) -> Option<Vec<Option<u32>>> {
        let full = (cached / self.page_len) as usize;
        let rest = cached % self.page_len;
        let start = full * self.page_len as usize;
        let partial = match rest {
            0 => Vec::new(),
            _ => self.tree.partial_children(found.path[full], &tokens[start..]),
        };
        let mut sources = Vec::with_capacity(self.pools.len());
        for (group, pool) in self.pools.iter().enumerate() {
            let seen = first_visible(pool.reach(), cached);
            let mut needed = (seen / self.page_len) as usize..full;
            if !needed.all(|i| self.tree.page(found.path[i + 1], group).is_some()) {
                return None;
            }
            if rest == 0 || seen >= cached {
                sources.push(None);
                continue;
            }
            let long = partial.iter().filter(|&&(_, n)| n >= rest);
            sources.push(Some(long.filter_map(|&(c, _)| self.tree.page(c, group)).next()?));
        }
        // A group that needs no copy gets a fresh page when its first row is written.
        Some(sources)
    }

    /// Why not more than `cached` tokens could be reused.
    fn why(&self, found: &Match, tokens: &[u32], cached: u32) -> ReuseStop {
        let full = (found.path.len() as u32 - 1) * self.page_len;
        let best = found.partial.first().copied();
        let matched = full + best.map_or(0, |(_, n)| n);
        let (len, most) = (tokens.len() as u32, tokens.len() as u32 - 1);
        if cached == most {
            return ReuseStop::WholePrompt;
        }
        if cached < matched.min(most) {
            return match self.recurrent {
                true => ReuseStop::NoSnapshot { matched },
                false => ReuseStop::Evicted { matched },
            };
        }
        let after = best.map_or_else(
            || self.tree.first_child_token(found.path[found.path.len() - 1]),
            |(child, n)| self.tree.tokens(child).get(n as usize).copied(),
        );
        match after {
            Some(other) if matched < len => {
                ReuseStop::Diverged { at: matched, cached: other, prompt: tokens[matched as usize] }
            }
            _ => ReuseStop::CacheEnded,
        }
    }

    /// Takes a page, and from the tree what it held.
    fn take(&mut self, group: usize) -> Option<u32> {
        let taken = self.pools[group].take()?;
        if let Some(node) = taken.evicted {
            self.tree.clear_page(node, group);
        }
        Some(taken.page)
    }

    /// Gives the sequence pages for all rows below `rows`. `false` when there are too few; those
    /// that were had stay with it.
    pub(crate) fn ensure(&mut self, pages: &mut SeqPages, rows: u32) -> bool {
        let wanted = rows.div_ceil(self.page_len) as usize;
        for group in 0..self.pools.len() {
            while pages.tables[group].0.len() < wanted {
                let Some(page) = self.take(group) else { return false };
                Arc::make_mut(&mut pages.tables[group]).0.push(page);
            }
        }
        true
    }

    /// Gives up the pages that row `next` and later ones do not see.
    pub(crate) fn release_behind(&mut self, pages: &mut SeqPages, next: u32) {
        for (group, pool) in self.pools.iter_mut().enumerate() {
            let seen = (first_visible(pool.reach(), next) / self.page_len) as usize;
            let table = &pages.tables[group].0;
            let seen = seen.min(table.len());
            // Pages behind a window were given up in order, so the last ones tell where to begin.
            let held = table[..seen].iter().rposition(|&p| p == PageTable::NONE);
            let from = held.map_or(0, |i| i + 1);
            for index in from..seen {
                let table = &mut Arc::make_mut(&mut pages.tables[group]).0;
                pool.release(std::mem::replace(&mut table[index], PageTable::NONE));
            }
        }
    }

    /// Enters full pages into the prefix tree. The first `rows` rows were given to the device, with
    /// `tokens` as their tokens.
    pub(crate) fn register(&mut self, pages: &mut SeqPages, tokens: &[u32], rows: u32) {
        if !self.keep {
            return;
        }
        let len = self.page_len as usize;
        let known = (rows as usize).min(tokens.len()) / len;
        while (pages.registered as usize) < known {
            let index = pages.registered as usize;
            let node = self.tree.child_or_new(pages.tip, &tokens[index * len..(index + 1) * len]);
            self.tree.hold(node);
            self.name_pages(pages, index, node);
            self.tree.let_go(pages.tip);
            pages.tip = node;
            pages.registered += 1;
        }
    }

    /// Lets a node name the sequence's pages at `index` where it has none.
    fn name_pages(&mut self, pages: &SeqPages, index: usize, node: NodeId) {
        for (group, pool) in self.pools.iter_mut().enumerate() {
            let page = pages.tables[group].0.get(index).copied().unwrap_or(PageTable::NONE);
            let free = page != PageTable::NONE && !pool.is_named(page);
            if free && self.tree.page(node, group).is_none() {
                pool.name(page, node);
                self.tree.set_page(node, group, page);
            }
        }
    }

    /// Keeps the last, partly filled page of a sequence that ends, too.
    pub(crate) fn register_rest(&mut self, pages: &mut SeqPages, tokens: &[u32], rows: u32) {
        self.register(pages, tokens, rows);
        let start = (pages.registered * self.page_len) as usize;
        let end = (rows as usize).min(tokens.len());
        if !self.keep || start >= end {
            return;
        }
        let rest = &tokens[start..end];
        let node = self.tree.child_or_new(pages.tip, rest);
        self.name_pages(pages, pages.registered as usize, node);
        self.tree.prune(node);
    }

    /// Keeps the recurrent states of a sequence after `rows` rows; its pages are registered.
    pub(crate) fn keep_snapshot(
        &mut self,
        pages: &SeqPages,
        tokens: &[u32],
        rows: u32,
        data: Vec<u8>,
    ) {
        let rest = &tokens[(pages.registered * self.page_len) as usize..rows as usize];
        self.tree.hold(pages.tip);
        for node in self.snapshots.insert(pages.tip, rest, data) {
            self.tree.let_go(node);
        }
    }

    /// Whether a snapshot after `rows` rows would be of use and is not there yet. The pages are
    /// registered.
    pub(crate) fn wants_snapshot(&mut self, pages: &SeqPages, tokens: &[u32], rows: u32) -> bool {
        let start = pages.registered * self.page_len;
        self.recurrent
            && self.keep
            && rows > 0
            && rows >= start
            && rows as usize <= tokens.len()
            && !self.snapshots.touch(pages.tip, &tokens[start as usize..rows as usize])
    }

    /// Takes everything back from a sequence. Its last pages are the first to be taken by others.
    pub(crate) fn end(&mut self, pages: SeqPages) {
        for (group, pool) in self.pools.iter_mut().enumerate() {
            for &page in pages.tables[group].0.iter().rev().filter(|&&p| p != PageTable::NONE) {
                pool.release(page);
            }
        }
        self.tree.let_go(pages.tip);
    }
}

#[cfg(test)]
mod tests {
    use infr_graph::Reach;
    use infr_tensor::DType;

    use super::*;

    fn cache(pages: u32) -> Cache {
        let group = CacheGroup {
            key_width: 1,
            value_width: 1,
            dtype: DType::F32,
            reach: Reach::Full,
            states: Vec::new(),
        };
        Cache::new(&[group], &[pages], 4, Some(Snapshots::new(40)), true)
    }

    /// Runs a sequence of these tokens to its end, with a snapshot of ten bytes there.
    fn run(cache: &mut Cache, salt: u64, tokens: &[u32]) -> u32 {
        let rows = tokens.len() as u32;
        let mut begin = cache.begin(Lookup { salt, tokens, reuse: true }).unwrap();
        assert!(cache.ensure(&mut begin.pages, rows));
        cache.register(&mut begin.pages, tokens, rows);
        if cache.wants_snapshot(&begin.pages, tokens, rows) {
            cache.keep_snapshot(&begin.pages, tokens, rows, vec![0; 10]);
        }
        cache.register_rest(&mut begin.pages, tokens, rows);
        cache.end(begin.pages);
        begin.cached
    }

    #[test]
    fn nothing_is_left_of_what_was_evicted() {
        let mut cache = cache(8);
        for salt in 0..20 {
            let tokens: Vec<u32> = (0..14).map(|i| i / 5 * salt).collect();
            run(&mut cache, u64::from(salt % 3), &tokens);
            run(&mut cache, u64::from(salt % 3), &tokens[..9]);
        }
        // A text without cached beginning takes all pages; its last snapshot replaces the others.
        for salt in 100..105 {
            assert_eq!(run(&mut cache, salt, &[1; 32]), 0);
        }
        assert_eq!((cache.snapshots.count(), cache.stats()[0].cached), (4, 8));
        // The last text has a root and eight pages; three others have a root and eight nodes, kept
        // by their snapshots.
        assert_eq!(cache.tree.len(), 4 * 9);
    }

    #[test]
    fn a_snapshot_is_the_way_on() {
        let mut cache = cache(8);
        assert_eq!(run(&mut cache, 0, &[1, 2, 3, 4, 5, 6]), 0);
        assert_eq!(run(&mut cache, 0, &[1, 2, 3, 4, 5, 6, 7]), 6);
        assert_eq!(run(&mut cache, 0, &[1, 2, 3, 4, 5, 9]), 0);
    }
}
