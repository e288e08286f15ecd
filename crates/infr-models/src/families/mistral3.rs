//! Mistral 3: the Llama block with a temperature of the queries and its own YaRN parameters.

use infr_graph::{PositionScale, Yarn};

use crate::prelude::*;
use crate::rope::yarn_magnitude;

/// The family.
pub(crate) struct Mistral3;

struct Mistral3Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    temperature: Option<PositionScale>,
    experts: Option<Experts>,
}

impl Family for Mistral3 {
    fn archs(&self) -> &'static [&'static str] {
        &["mistral3"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let rope = with_yarn_keys(&h, rope)?;
        let experts = match info.experts {
            Some(_) => Some(Experts { width: common.ffn(0), ..Experts::parse(&h, |_| Some(1))? }),
            None => None,
        };
        let temperature = h.factor("attention.temperature_scale")?.map(|s| PositionScale {
            s,
            offset: 0,
            period: rope.original_context,
        });
        Ok(Box::new(Mistral3Model { info, common, rope, temperature, experts }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("mistral3", "mistral3", unit)
            .context(4096, 1e6)
            .key(".rope.scaling.type", "yarn")
            .key(".rope.scaling.factor", 16.0f32)
            .key(".rope.scaling.original_context_length", 8u32)
            .key(".rope.scaling.yarn_beta_fast", 16.0f32)
            .key(".rope.scaling.yarn_beta_slow", 2.0f32)
            .key(".rope.scaling.yarn_log_multiplier", 0.5f32)
            .key(".attention.temperature_scale", 0.3f32);
        vec![recipe]
    }
}

impl Model for Mistral3Model {
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
        let rotation = Rotation { rope: self.rope, factors: self.rope.factors(&mut net)? };
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            let rotated = SelfAttention::new(c.heads(layer), rotation, c.score_scale());
            let attention = SelfAttention { temperature: self.temperature, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = match &self.experts {
                Some(experts) => moe::moe(&mut net, h, experts)?,
                None => ffn::swiglu(&mut net, h, c.ffn(layer))?,
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}

/// YaRN with the betas and the logarithm's multiplier of the file.
fn with_yarn_keys(h: &Hparams<'_>, rope: Rope) -> Result<Rope, ModelError> {
    let Some(yarn) = rope.yarn else { return Ok(rope) };
    let yarn = Yarn {
        beta_fast: h.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(yarn.beta_fast),
        beta_slow: h.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(yarn.beta_slow),
        ..yarn
    };
    let magnitude = match h.factor("rope.scaling.yarn_log_multiplier")? {
        Some(k) => rope.magnitude / yarn_magnitude(k, rope.freq_scale.recip()),
        None => rope.magnitude,
    };
    Ok(Rope { yarn: Some(yarn), magnitude, ..rope })
}
