//! The pages of one cache group: who uses them, and which to take next.
//!
//! A page is free, cached (no sequence uses it, a node of the prefix tree names it) or used. Cached
//! pages are taken in the order in which they were given up.

use std::collections::BTreeMap;

use infr_graph::Reach;

use crate::prefix::NodeId;
use crate::stats::PageStats;

/// What is known of a page.
#[derive(Debug, Clone, Copy, Default)]
struct PageState {
    /// Sequences that use it.
    refs: u32,
    /// The node of the prefix tree whose tokens it holds.
    node: Option<NodeId>,
    /// Key in the order of cached pages.
    stamp: u64,
}

/// The pages of one cache group.
#[derive(Debug)]
pub(crate) struct Pool {
    reach: Reach,
    pages: Vec<PageState>,
    free: Vec<u32>,
    /// Cached pages, the one to be taken next first.
    cached: BTreeMap<u64, u32>,
    clock: u64,
}

/// A page that was taken for new content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) page: u32,
    /// The node that named it until now.
    pub(crate) evicted: Option<NodeId>,
}

impl Pool {
    pub(crate) fn new(reach: Reach, count: u32) -> Pool {
        Pool {
            reach,
            pages: vec![PageState::default(); count as usize],
            free: (0..count).rev().collect(),
            cached: BTreeMap::new(),
            clock: 0,
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    pub(crate) fn total(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Pages that can be taken.
    pub(crate) fn available(&self) -> u32 {
        (self.free.len() + self.cached.len()) as u32
    }

    /// Takes a page for one sequence: a free one, or the one cached longest.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.cached.pop_first()?.1,
        };
        let state = &mut self.pages[page as usize];
        debug_assert_eq!(state.refs, 0, "page {page} is in use");
        state.refs = 1;
        Some(Taken { page, evicted: state.node.take() })
    }

    /// One more sequence uses a page that the prefix tree names.
    pub(crate) fn retain(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        debug_assert!(state.node.is_some(), "page {page} is not shared");
        if state.refs == 0 {
            self.cached.remove(&state.stamp);
        }
        state.refs += 1;
    }

    /// One sequence uses a page no more.
    pub(crate) fn release(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        debug_assert!(state.refs > 0, "page {page} is not in use");
        state.refs -= 1;
        if state.refs > 0 {
            return;
        }
        match state.node {
            Some(_) => self.cache(page),
            None => self.free.push(page),
        }
    }

    /// Makes a cached page the last to be taken.
    pub(crate) fn touch(&mut self, page: u32) {
        let state = self.pages[page as usize];
        if state.refs == 0 && state.node.is_some() {
            self.cached.remove(&state.stamp);
            self.cache(page);
        }
    }

    fn cache(&mut self, page: u32) {
        self.clock += 1;
        self.pages[page as usize].stamp = self.clock;
        self.cached.insert(self.clock, page);
    }

    /// A node of the prefix tree names the page from here on.
    pub(crate) fn name(&mut self, page: u32, node: NodeId) {
        let state = &mut self.pages[page as usize];
        debug_assert!(state.refs > 0 && state.node.is_none(), "page {page} cannot be named");
        state.node = Some(node);
    }

    /// Whether a node names the page.
    pub(crate) fn is_named(&self, page: u32) -> bool {
        self.pages[page as usize].node.is_some()
    }

    pub(crate) fn stats(&self) -> PageStats {
        let (total, free, cached) =
            (self.total(), self.free.len() as u32, self.cached.len() as u32);
        PageStats { total, free, cached, used: total - free - cached }
    }
}

/// The first row that row `index` sees in a group.
pub(crate) fn first_visible(reach: Reach, index: u32) -> u32 {
    match reach {
        Reach::Full => 0,
        Reach::Window(n) => (index + 1).saturating_sub(n.max(1)),
        Reach::Chunk(n) => index - index % n.max(1),
        Reach::Symmetric(n) => index.saturating_sub(n / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_pages_are_taken_in_the_order_they_were_given_up() {
        let mut pool = Pool::new(Reach::Full, 3);
        let pages: Vec<u32> = (0..3).map(|_| pool.take().unwrap().page).collect();
        for (i, &page) in pages.iter().enumerate() {
            pool.name(page, NodeId(i as u32));
        }
        assert_eq!(pool.take(), None);
        pool.release(pages[2]);
        pool.release(pages[0]);
        pool.touch(pages[2]);
        assert_eq!(pool.take(), Some(Taken { page: pages[0], evicted: Some(NodeId(0)) }));
        pool.retain(pages[2]);
        assert_eq!(pool.take(), None);
        assert_eq!(pool.stats(), PageStats { total: 3, free: 0, cached: 0, used: 3 });
    }

    #[test]
    fn unnamed_pages_become_free() {
        let mut pool = Pool::new(Reach::Window(4), 1);
        let page = pool.take().unwrap().page;
        pool.release(page);
        assert_eq!(pool.stats().free, 1);
    }

    #[test]
    fn visible_rows_follow_the_reach() {
        assert_eq!(first_visible(Reach::Full, 9), 0);
        assert_eq!(first_visible(Reach::Window(4), 9), 6);
        assert_eq!(first_visible(Reach::Window(4), 2), 0);
        assert_eq!(first_visible(Reach::Chunk(4), 9), 8);
        assert_eq!(first_visible(Reach::Symmetric(4), 9), 7);
    }
}
