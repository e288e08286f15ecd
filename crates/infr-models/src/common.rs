//! The hyper-parameters that every decoder has.

use infr_gguf::Gguf;

use crate::blocks::attention::Heads;
use crate::error::ModelError;
use crate::family::{DecodeStyle, ModelInfo, Pooling, SamplingDefaults};
use crate::hparams::{
    Hparams, MAX_BLOCKS, MAX_CONTEXT, MAX_EXPERTS, MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH, WIDTH,
};

/// Sizes that all families read from the same keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Common {
    /// Layers of the trunk.
    pub layers: u32,
    /// Multi-token prediction blocks behind the trunk.
    pub draft_layers: u32,
    /// Width of the residual stream (E).
    pub embedding: u32,
    /// Tokens (V).
    pub vocab: u32,
    /// Trained context.
    pub context: u32,
    /// Added to mean squares.
    pub eps: f32,
    /// Query heads per block (H).
    pub heads: Vec<u32>,
    /// KV heads per block (KH); 0 marks a layer without attention.
    pub kv_heads: Vec<u32>,
    /// FFN width per block (F).
    pub ffn: Vec<u32>,
    /// Elements of a query and key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// One vector per sequence instead of tokens.
    pub pooling: Option<Pooling>,
    /// Classes of a reranker.
    pub classes: u32,
}

impl Common {
    /// Reads and checks the keys of a model whose layers all have attention.
    pub(crate) fn parse(h: &Hparams<'_>) -> Result<Common, ModelError> {
        let common = Common::parse_mixed(h)?;
        for (suffix, heads) in
            [("attention.head_count", &common.heads), ("attention.head_count_kv", &common.kv_heads)]
        {
            if heads.contains(&0) {
                return Err(h.wrong(suffix, 0, "every layer needs at least one"));
            }
        }
        Ok(common)
    }

    /// Reads and checks the keys of a model that may have layers without attention: 0 KV heads.
    pub(crate) fn parse_mixed(h: &Hparams<'_>) -> Result<Common, ModelError> {
        let blocks = h.require_u32("block_count", 1..=MAX_BLOCKS)?;
        let draft_layers = h.u32("nextn_predict_layers", 0..=blocks - 1)?.unwrap_or(0);
        let embedding = h.require_u32("embedding_length", WIDTH)?;
        let heads = h
            .per_block("attention.head_count", blocks, 0..=MAX_HEADS)?
            .ok_or_else(|| h.missing("attention.head_count"))?;
        let kv_heads = h
            .per_block("attention.head_count_kv", blocks, 0..=MAX_HEADS)?
            .unwrap_or_else(|| heads.clone());
        for (&q, &kv) in heads.iter().zip(&kv_heads) {
            if kv != 0 && (q == 0 || q % kv != 0) {
                let allowed = format!("it must divide the {q} query heads");
                return Err(h.wrong("attention.head_count_kv", kv, allowed));
            }
        }
        let key_dim = head_dim(h, "attention.key_length", embedding, &heads)?;
        let value_dim = head_dim(h, "attention.value_length", embedding, &heads)?;
        let eps = h
            .positive("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| h.missing("attention.layer_norm_rms_epsilon"))?;
        Ok(Common {
            layers: blocks - draft_layers,
            draft_layers,
            embedding,
            vocab: h.vocab()?,
            context: h.require_u32("context_length", 1..=MAX_CONTEXT)?,
            eps,
            heads,
            kv_heads,
            ffn: h
                .per_block("feed_forward_length", blocks, 0..=MAX_WIDTH)?
                .unwrap_or_else(|| vec![0; blocks as usize]),
            key_dim,
            value_dim,
            pooling: h.pooling()?,
            classes: h.classes()?,
        })
    }

    /// Heads of a layer.
    pub(crate) fn heads(&self, layer: u32) -> Heads {
        Heads {
            query: self.heads[layer as usize],
            kv: self.kv_heads[layer as usize],
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        }
    }

    /// FFN width of a layer.
    pub(crate) fn ffn(&self, layer: u32) -> u32 {
        self.ffn[layer as usize]
    }

    /// The usual factor of attention scores.
    pub(crate) fn score_scale(&self) -> f32 {
        (self.key_dim as f32).sqrt().recip()
    }

    /// What a model whose rows see only rows before them says about itself.
    pub(crate) fn info(
        &self,
        h: &Hparams<'_>,
        gguf: &Gguf,
        sampling: SamplingDefaults,
    ) -> Result<ModelInfo, ModelError> {
        const CAUSAL: &str = "attention.causal";
        if h.bool(CAUSAL)? == Some(false) {
            return Err(h.wrong(
                CAUSAL,
                false,
                "this architecture is supported with causal order only",
            ));
        }
        self.info_of_any_order(h, gguf, sampling)
    }

    /// What the model says about itself.
    pub(crate) fn info_of_any_order(
        &self,
        h: &Hparams<'_>,
        gguf: &Gguf,
        sampling: SamplingDefaults,
    ) -> Result<ModelInfo, ModelError> {
        let used = h.uniform("expert_used_count", 0..=MAX_EXPERTS)?.unwrap_or(0);
        let experts = h.u32("expert_count", 0..=MAX_EXPERTS)?.filter(|&x| x > 0);
        let style = match self.pooling {
            None => DecodeStyle::Autoregressive,
            Some(pooling) => DecodeStyle::Embedding { pooling, causal: true },
        };
        Ok(ModelInfo {
            architecture: h.architecture().to_owned(),
            name: h.metadata().str("general.name")?.map(str::to_owned),
            layers: self.layers,
            embedding: self.embedding,
            vocab: self.vocab,
            context_length: self.context,
            experts: experts.map(|x| (x, used)),
            draft: false,
            style,
            sampling: h.sampling(sampling)?,
            parameters: gguf.tensors().iter().map(|t| t.elements()).sum(),
        })
    }
}

fn head_dim(
    h: &Hparams<'_>,
    suffix: &str,
    embedding: u32,
    heads: &[u32],
) -> Result<u32, ModelError> {
    let dim = match h.u32(suffix, 1..=MAX_HEAD_DIM)? {
        Some(dim) => dim,
        None => {
            let count = heads.iter().copied().find(|&n| n > 0).unwrap_or(0);
            if count == 0 || !embedding.is_multiple_of(count) || embedding / count > MAX_HEAD_DIM {
                let allowed = format!("it must divide the embedding of {embedding}");
                return Err(h.wrong("attention.head_count", count, allowed));
            }
            embedding / count
        }
    };
    match heads.iter().map(|&n| n * dim).find(|&width| width > MAX_WIDTH) {
        Some(_) => Err(h.wrong(suffix, dim, format!("all heads together may have {MAX_WIDTH}"))),
        None => Ok(dim),
    }
}
