//! The tree of cached tokens.
//!
//! A node stands for one page of tokens after its parent's, in every cache group that still has
//! the page. Because a child is found by comparing its tokens below the right parent, a path names
//! exactly one text: no hash can mix up two chats. The root depends on whatever else changes the
//! content of a page (the request's salt); model and cache types are the same for a whole engine.
//! Full nodes hold `page_len` tokens; nodes with fewer are last pages that were left partly filled
//! and have no children.

use std::collections::HashMap;

use infr_backend::GroupRanges;

/// Index of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// One page of tokens.
#[derive(Debug, Default)]
struct Node {
    /// `None` for roots.
    parent: Option<NodeId>,
    tokens: Box<[u32]>,
    /// Its page per cache group.
    pages: [Option<u32>; GroupRanges::MAX],
    children: Vec<NodeId>,
    /// Sequences and snapshots that refer to it.
    holders: u32,
    live: bool,
}

/// All cached tokens.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
    roots: HashMap<u64, NodeId>,
}

/// How far a prompt matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    /// The root and the full nodes that match, in order.
    pub(crate) path: Vec<NodeId>,
    /// Children of the last node that match in part, with how many tokens, best first.
    pub(crate) partial: Vec<(NodeId, u32)>,
}

impl Tree {
    /// The root of a salt.
    pub(crate) fn root(&mut self, salt: u64) -> NodeId {
        if let Some(&root) = self.roots.get(&salt) {
            return root;
        }
        let root = self.insert(Node { live: true, ..Node::default() });
        self.roots.insert(salt, root);
        root
    }

    /// Follows a prompt as far as it is known.
    pub(crate) fn follow(&mut self, salt: u64, prompt: &[u32], page_len: usize) -> Match {
        let mut path = vec![self.root(salt)];
        let mut rest = prompt;
        loop {
            let tip = path[path.len() - 1];
            let next = match rest.get(..page_len) {
                Some(tokens) => self.child(tip, tokens),
                None => None,
            };
            let Some(next) = next else {
                let partial = self.partial_children(tip, rest);
                return Match { path, partial };
            };
            path.push(next);
            rest = &rest[page_len..];
        }
    }

    /// Children that share at least one first token with `rest`, longest share first.
    pub(crate) fn partial_children(&self, node: NodeId, rest: &[u32]) -> Vec<(NodeId, u32)> {
        let shared = |&child: &NodeId| {
            let tokens = &self.node(child).tokens;
            let n = tokens.iter().zip(rest).take_while(|(a, b)| a == b).count();
            (n > 0).then_some((child, n as u32))
        };
        let mut found: Vec<_> = self.node(node).children.iter().filter_map(shared).collect();
        found.sort_by_key(|&(child, n)| (std::cmp::Reverse(n), child.0));
        found
    }

    /// The child with exactly these tokens.
    pub(crate) fn child(&self, node: NodeId, tokens: &[u32]) -> Option<NodeId> {
        let children = &self.node(node).children;
        children.iter().copied().find(|&c| *self.node(c).tokens == *tokens)
    }

    /// The child with exactly these tokens, made when there is none.
    pub(crate) fn child_or_new(&mut self, parent: NodeId, tokens: &[u32]) -> NodeId {
        if let Some(child) = self.child(parent, tokens) {
            return child;
        }
        let node =
            Node { parent: Some(parent), tokens: tokens.into(), live: true, ..Node::default() };
        let child = self.insert(node);
        self.node_mut(parent).children.push(child);
        child
    }

    fn insert(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.unused.pop() {
            self.nodes[id.0 as usize] = node;
            return id;
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn node(&self, id: NodeId) -> &Node {
        let node = &self.nodes[id.0 as usize];
        debug_assert!(node.live, "node {} was removed", id.0);
        node
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    pub(crate) fn tokens(&self, id: NodeId) -> &[u32] {
        &self.node(id).tokens
    }

    /// The first token of some child: what cached text goes on with.
    pub(crate) fn first_child_token(&self, id: NodeId) -> Option<u32> {
        let child = self.node(id).children.last()?;
        self.tokens(*child).first().copied()
    }

    pub(crate) fn page(&self, id: NodeId, group: usize) -> Option<u32> {
        self.node(id).pages[group]
    }

    pub(crate) fn set_page(&mut self, id: NodeId, group: usize, page: u32) {
        self.node_mut(id).pages[group] = Some(page);
    }

    /// The page of a group was given to others.
    pub(crate) fn clear_page(&mut self, id: NodeId, group: usize) {
        self.node_mut(id).pages[group] = None;
        self.prune(id);
    }

    /// Keeps a node while something refers to it.
    pub(crate) fn hold(&mut self, id: NodeId) {
        self.node_mut(id).holders += 1;
    }

    /// Ends a [`Tree::hold`].
    pub(crate) fn let_go(&mut self, id: NodeId) {
        self.node_mut(id).holders -= 1;
        self.prune(id);
    }

    /// Removes a node that says nothing, and then its parents.
    pub(crate) fn prune(&mut self, id: NodeId) {
        let mut id = id;
        loop {
            let node = self.node(id);
            let Some(parent) = node.parent else {
                self.prune_root(id);
                return;
            };
            let used = node.holders > 0 || !node.children.is_empty();
            if used || node.pages.iter().any(Option::is_some) {
                return;
            }
            self.nodes[id.0 as usize] = Node::default();
            self.unused.push(id);
            self.node_mut(parent).children.retain(|&c| c != id);
            id = parent;
        }
    }

    /// Removes an empty root, so that salts leave nothing behind.
    fn prune_root(&mut self, id: NodeId) {
        let node = self.node(id);
        if node.holders == 0 && node.children.is_empty() {
            self.roots.retain(|_, root| *root != id);
            self.nodes[id.0 as usize] = Node::default();
            self.unused.push(id);
        }
    }

    /// Live nodes, roots included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.iter().filter(|n| n.live).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_by_its_tokens() {
        let mut tree = Tree::default();
        let root = tree.root(0);
        tree.hold(root);
        let a = tree.child_or_new(root, &[1, 2]);
        let b = tree.child_or_new(a, &[3, 4]);
        let c = tree.child_or_new(a, &[3]);
        for node in [a, b, c] {
            tree.hold(node);
        }
        let found = tree.follow(0, &[1, 2, 3, 4, 5], 2);
        assert_eq!(found, Match { path: vec![root, a, b], partial: vec![] });
        let found = tree.follow(0, &[1, 2, 3, 9], 2);
        assert_eq!(found, Match { path: vec![root, a], partial: vec![(b, 1), (c, 1)] });
        // The same tokens elsewhere are another text.
        assert_eq!(tree.follow(0, &[3, 4], 2).partial, vec![]);
        let other = tree.root(1);
        assert_eq!(tree.follow(1, &[1, 2], 2), Match { path: vec![other], partial: vec![] });
    }

    #[test]
    fn nodes_that_say_nothing_go() {
        let mut tree = Tree::default();
        let root = tree.root(7);
        let a = tree.child_or_new(root, &[1]);
        let b = tree.child_or_new(a, &[2]);
        tree.set_page(a, 0, 5);
        tree.hold(b);
        tree.clear_page(a, 0);
        assert_eq!(tree.len(), 3);
        tree.let_go(b);
        assert_eq!(tree.len(), 0);
    }
}
