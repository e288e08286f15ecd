//! OLMo 2 and 3: norms behind the branches, and over all queries and all keys of a row; version 3 has
//! windows in three of four layers, which keep the plain rotation.

use crate::hparams::MAX_CONTEXT;
use crate::prelude::*;

/// The family.
pub(crate) struct Olmo2;

struct Olmo2Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    /// What each layer sees.
    reach: Vec<Reach>,
}

impl Family for Olmo2 {
    fn archs(&self) -> &'static [&'static str] {
        &["olmo2"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let window = h.u32("attention.sliding_window", 0..=MAX_CONTEXT)?.unwrap_or(0);
        let reach = h
            .window_layers(common.layers, 4)?
            .into_iter()
            .map(|windowed| match windowed && window > 0 {
                true => Reach::Window(window),
                false => Reach::Full,
            })
            .collect();
        Ok(Box::new(Olmo2Model { info, common, rope, reach }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let olmo3 = Recipe::tiny("olmo3", "olmo2", unit)
            .context(4096, 5e5)
            .key(".attention.sliding_window", 6u32)
            .key(".rope.scaling.type", "yarn")
            .key(".rope.scaling.factor", 8.0f32)
            .key(".rope.scaling.original_context_length", 64u32);
        vec![Recipe::tiny("olmo2", "olmo2", unit).context(4096, 5e5), olmo3]
    }
}

impl Model for Olmo2Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn build(
        &self,
        tensors: &dyn TensorTable,
        options: &BuildOptions,
    ) -> Result<Program, ModelError> {
        let c = &self.common;
        let mut net = Net::new(tensors, options, c.eps)?;
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            let heads = c.heads(layer);
            let reach = self.reach[layer as usize];
            let rope = match reach {
                Reach::Window(_) => self.rope.plain(self.rope.base),
                Reach::Full | Reach::Chunk(_) | Reach::Symmetric(_) => self.rope,
            };
            let mut qkv = attention::qkv(&mut net, x, heads)?;
            qkv.q = norm::rms(&mut net, qkv.q, "attn_q_norm")?;
            qkv.k = norm::rms(&mut net, qkv.k, "attn_k_norm")?;
            let rotation = Rotation { rope, factors: None };
            let qkv = attention::rotate(&mut net, qkv, heads, &rotation);
            let cache = attention::cache(&mut net, heads, reach);
            let scores = Scores::scaled(c.score_scale());
            let o = attention::attend(&mut net, cache, qkv, heads, scores);
            let o = attention::project(&mut net, o, c.embedding)?;
            let o = norm::rms(&mut net, o, "post_attention_norm")?;
            x = net.b.add(x, o);
            let f = ffn::swiglu(&mut net, x, c.ffn(layer))?;
            let f = norm::rms(&mut net, f, "post_ffw_norm")?;
            x = net.b.add(x, f);
        }
        let head = Head { matrix: OutputMatrix::Own, ..Head::default() };
        head::finish(&mut net, c, x, head)?;
        net.finish()
    }
}
