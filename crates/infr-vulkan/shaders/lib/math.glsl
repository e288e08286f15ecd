// Elementary functions to a few units in the last place; drivers' own are allowed to be far less exact.

// e^x, after Cody and Waite, "Software Manual for the Elementary Functions", 1980.
float exp_f32(float x) {
  const float n = clamp(roundEven(x * 1.442695041), -126.0, 127.0);
  // ln 2 in two parts; the product with the first is exact.
  float r = fma(n, -0.693359375, x);
  r = fma(n, 2.12194440e-4, r);
  float p = fma(r, 1.0 / 720.0, 1.0 / 120.0);
  p = fma(r, p, 1.0 / 24.0);
  p = fma(r, p, 1.0 / 6.0);
  p = fma(r, p, 0.5);
  p = fma(r * r, p, r) + 1.0;
  const float y = p * uintBitsToFloat(uint(int(n) + 127) << 23);
  return x < -87.0 ? 0.0 : (x > 88.72 ? uintBitsToFloat(0x7f800000u) : y);
}

float tanh_f32(float x) {
  const float a = abs(x), s = x * x;
  if (a < 0.25) {
    return x * (1.0 + s * (-1.0 / 3.0 + s * (2.0 / 15.0 + s * (-17.0 / 315.0 + s * (62.0 / 2835.0)))));
  }
  const float t = 1.0 - 2.0 / (exp_f32(2.0 * min(a, 20.0)) + 1.0);
  return x < 0.0 ? -t : t;
}

float sigmoid_f32(float x) { return 1.0 / (1.0 + exp_f32(-x)); }

// GELU in its tanh form (Hendrycks and Gimpel, 2016).
float gelu_f32(float x) {
  return 0.5 * x * (1.0 + tanh_f32(0.7978845608 * x * (1.0 + 0.044715 * x * x)));
}

// ln(1 + e^x), x itself above 20; Kahan's correction keeps small results exact.
float softplus_f32(float x) {
  if (x > 20.0) { return x; }
  const float e = exp_f32(x), y = 1.0 + e;
  return log(y) - ((y - 1.0) - e) / y;
}

// The activations of gated products, numbered as KERNELS.md says.
float gate_act(uint act, float gate, float up) {
  switch (act) {
    case 0: return gate * sigmoid_f32(gate) * up;
    case 1: return gelu_f32(gate) * up;
    case 2: return max(gate, 0.0) * max(gate, 0.0) * up;
    case 3: return sigmoid_f32(gate) * up;
    default:
      const float g = min(gate, 7.0);
      return g * sigmoid_f32(1.702 * g) * (clamp(up, -7.0, 7.0) + 1.0);
  }
}
