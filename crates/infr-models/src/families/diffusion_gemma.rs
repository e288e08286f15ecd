//! DiffusionGemma: blocks of text are denoised together on the backbone of Gemma 4 with experts.
//!
//! `Forward` takes prompt rows and finished blocks causally, with the encoder's output scales, and fills
//! the cache. `Denoise` takes the rows of a canvas: they are written behind the cache, over the step
//! before, and every row sees all of them; that is the business of the batch's visible ranges.
//!
//! What goes from one step to the next is a row of soft embedding per canvas row: the expected embedding
//! of the token under the step's probabilities at its temperature. It leaves as `Carried(0)` and comes in
//! as carried value 0; zeros, before the first step, add exactly nothing. `Carried(1)` is each row's
//! entropy.

use infr_graph::{BatchField, GateAct, Op, Output, Phase, StateId, ValueId};

use crate::blocks::norm;
use crate::families::gemma4::{Backbone, Cache, tiny_backbone};
use crate::family::{DecodeStyle, Diffusion};
use crate::hparams::MAX_WIDTH;
use crate::prelude::*;

/// The family.
pub(crate) struct DiffusionGemma;

struct DiffusionGemmaModel {
    info: ModelInfo,
    backbone: Backbone,
}

impl Family for DiffusionGemma {
    fn archs(&self) -> &'static [&'static str] {
        &["diffusion-gemma"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let backbone = Backbone::parse(&h)?;
        let mut info = backbone.common.info_of_any_order(&h, gguf, sampling::GEMMA)?;
        info.style = DecodeStyle::BlockDiffusion(diffusion(&h)?);
        Ok(Box::new(DiffusionGemmaModel { info, backbone }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let windowed = [true, true, false, true];
        let recipe = tiny_backbone("diffusion_gemma", "diffusion-gemma", unit, &windowed)
            .experts(8, 2, unit)
            .key(".attention.causal", false)
            .key("diffusion.canvas_length", 12u32)
            .key("diffusion.eb_max_steps", 6u32)
            .with(&["ffn_gate_inp.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.scale"]);
        vec![recipe]
    }
}

/// The sampler's keys, which have no architecture in front.
fn diffusion(h: &Hparams<'_>) -> Result<Diffusion, ModelError> {
    let meta = h.metadata();
    let wrong = |key: &str, found: String, allowed: &str| ModelError::Value {
        key: key.to_owned(),
        found,
        allowed: allowed.to_owned(),
    };
    let number = |key: &str, default: f32| match meta.f32(key)? {
        None => Ok(default),
        Some(v) if v >= 0.0 => Ok(v),
        Some(v) => Err(wrong(key, v.to_string(), "at least 0 is allowed")),
    };
    let count = |key: &str, found: u32, most: u32| match (1..=most).contains(&found) {
        true => Ok(found),
        false => Err(wrong(key, found.to_string(), &format!("1 to {most} is allowed"))),
    };
    let (canvas, steps) = ("diffusion.canvas_length", "diffusion.eb_max_steps");
    Ok(Diffusion {
        canvas: count(canvas, meta.require_u32(canvas)?, MAX_WIDTH)?,
        max_steps: count(steps, meta.u32(steps)?.unwrap_or(48), 1 << 16)?,
        t_min: number("diffusion.eb_t_min", 0.4)?,
        t_max: number("diffusion.eb_t_max", 0.8)?,
        entropy_bound: number("diffusion.eb_entropy_bound", 0.1)?,
        stability_threshold: meta.u32("diffusion.eb_stability_threshold")?.unwrap_or(1),
        confidence_threshold: number("diffusion.eb_confidence_threshold", 0.005)?,
        mask_token: meta.u32("tokenizer.ggml.mask_token_id")?,
    })
}

impl Model for DiffusionGemmaModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn build(
        &self,
        tensors: &dyn TensorTable,
        options: &BuildOptions,
    ) -> Result<Program, ModelError> {
        let (b, c) = (&self.backbone, &self.backbone.common);
        let mut net = Net::new(tensors, options, c.eps)?;
        let mut caches = Vec::new();
        for layer in 0..c.layers {
            net.enter(layer);
            caches.push(b.cache(&mut net, layer));
        }
        net.leave();
        let x = b.embed(&mut net)?;
        let x = self.layers(&mut net, x, &caches, "enc_layer_output_scale.weight")?;
        head::finish(&mut net, c, x, b.head())?;
        let x = self.canvas(&mut net)?;
        let x = self.layers(&mut net, x, &caches, "layer_output_scale.weight")?;
        self.finish_step(&mut net, x)?;
        net.finish()
    }
}

impl DiffusionGemmaModel {
    fn layers(
        &self,
        net: &mut Net<'_>,
        mut x: ValueId,
        caches: &[StateId],
        scale: &str,
    ) -> Result<ValueId, ModelError> {
        for (layer, cache) in (0..).zip(caches) {
            net.enter(layer);
            x = self.backbone.attention(net, x, layer, Cache::Own(*cache))?;
            x = self.backbone.ffn(net, x, layer)?;
            let by = net.vector(scale, 1)?;
            x = net.b.mul_weight(x, by);
        }
        net.leave();
        Ok(x)
    }

    /// Canvas rows: embeddings plus what the soft embedding of the step before says, normalised.
    fn canvas(&self, net: &mut Net<'_>) -> Result<ValueId, ModelError> {
        let c = &self.backbone.common;
        let x = self.backbone.embed(net)?;
        let carried = Op::Input(BatchField::Carried { index: 0, width: c.embedding });
        let soft = net.b.node(carried, &[], &[], None)[0];
        let n = norm::rms(net, soft, "self_cond_pre_norm")?;
        let width = c.ffn(0);
        let gate = net.linear(n, "self_cond_gate", width)?;
        let up = net.linear(n, "self_cond_up", width)?;
        let y = net.b.gated(GateAct::Gelu, gate, up);
        let y = net.linear(y, "self_cond_down", c.embedding)?;
        let x = net.b.add(x, y);
        Ok(net.b.rms_norm(x, None, c.eps))
    }

    fn finish_step(&self, net: &mut Net<'_>, x: ValueId) -> Result<(), ModelError> {
        let c = &self.backbone.common;
        let x = net.b.gather_out(x);
        let hidden = norm::rms(net, x, "output_norm")?;
        let logits = head::logits(net, c, hidden, self.backbone.head())?;
        net.b.output(Output::Logits, logits);
        let probabilities = net.b.softmax(logits);
        let table = embed::table(net, c)?;
        let soft = net.b.linear_transposed(probabilities, table);
        let soft = net.b.scale(soft, (c.embedding as f32).sqrt());
        net.b.output(Output::Carried(0), soft);
        let entropy = net.b.entropy(probabilities);
        net.b.output(Output::Carried(1), entropy);
        let tokens = net.b.sample(logits);
        net.b.output(Output::Tokens, tokens);
        net.end_graph(Phase::Denoise);
        Ok(())
    }
}
