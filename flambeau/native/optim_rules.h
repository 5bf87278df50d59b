// The rules of optimizers, the same on every device: optim.c makes C functions of them, backends/cuda/optim.py CUDA kernels.
//
// RULE(name, NUMBERS(hyper-parameters behind lr), choice, (per tensor), (per element)). Choice: what may be there or not.
// Per tensor there are declarations: `double` is on the way to others, T is what elements are computed with. `step` is this
// step's count, `product` the second count, `decay` and `shrink` are weight_decay and 1 where nothing else is said.
// Per element k of p (parameter), g (gradient) and m, v, w (state): gk is the gradient with weight decay in it, pk the
// parameter, shrunk by decay that is decoupled, `little` eps. Each rounding is part of a rule, so terms keep their order.

RULE(adam, NUMBERS(double beta1, double beta2, double eps, double weight_decay, long decoupled), MAYBE_W, (
    T shrink = decoupled ? 1 - lr * weight_decay : 1, decay = decoupled ? 0 : weight_decay;
    T rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2;
    T root = sqrt(1 - pow(beta2, step)), rate = lr / (1 - pow(beta1, step));
), (
    T mk = m[k] + (gk - m[k]) * rest1, vk = v[k] * keep2 + SQUARE_TIMES(gk, rest2);
    m[k] = mk;
    v[k] = vk;
    if (GIVEN(w)) w[k] = vk = vk > w[k] || vk != vk ? vk : w[k];
    p[k] = pk - mk / (SQRT(vk) / root + little) * rate;
))

// `first`: the buffers are new (all zero) and become this step's gradient, which dampening does not touch.
RULE(sgd_step, NUMBERS(double momentum, double dampening, double weight_decay, long nesterov, long first), MAYBE_M_AHEAD, (
    T keep = first ? 0 : momentum, take = first ? 1 : 1 - dampening;
    T beyond = momentum, ahead = nesterov, rate = lr;
), (
    if (GIVEN(m)) {
        T bk = m[k] * keep + gk * take;
        m[k] = bk;
        gk = GIVEN(ahead) ? gk + bk * beyond : bk;
    }
    p[k] = pk - gk * rate;
))

RULE(rmsprop, NUMBERS(double alpha, double eps, double weight_decay, double momentum), MAYBE_V_W, (
    T keep = alpha, rest = 1 - alpha, along = momentum, rate = lr;
), (
    T vk = m[k] * keep + rest * gk * gk;
    m[k] = vk;
    if (GIVEN(w)) {
        T mean = w[k] + (gk - w[k]) * rest;
        w[k] = mean;
        vk = vk - mean * mean;
    }
    T root = SQRT(vk) + little;
    if (GIVEN(v)) {
        T bk = v[k] * along + gk / root;
        v[k] = bk;
        p[k] = pk - bk * rate;
    } else p[k] = pk - rate * gk / root;
))

RULE(adagrad, NUMBERS(double lr_decay, double eps, double weight_decay), ALWAYS, (
    T rate = lr / (1 + (step - 1) * lr_decay);
), (
    T sk = m[k] + gk * gk;
    m[k] = sk;
    p[k] = pk - rate * gk / (SQRT(sk) + little);
))

RULE(adadelta, NUMBERS(double rho, double eps, double weight_decay), ALWAYS, (
    T keep = rho, rest = 1 - rho, rate = lr;
), (
    T mk = m[k] * keep + rest * gk * gk;
    m[k] = mk;
    T dk = SQRT(v[k] + little) / SQRT(mk + little) * gk;
    v[k] = v[k] * keep + rest * dk * dk;
    p[k] = pk - dk * rate;
))

RULE(adamax, NUMBERS(double beta1, double beta2, double eps, double weight_decay), ALWAYS, (
    T rest = 1 - beta1, keep = beta2, rate = lr / (1 - pow(beta1, step));
), (
    T mk = m[k] + (gk - m[k]) * rest, old = v[k] * keep, size = ABS(gk) + little;
    m[k] = mk;
    v[k] = size = size > old || size != size ? size : old;
    p[k] = pk - rate * mk / size;
))

// `product`: of all mu so far, this step's included.
RULE(nadam_step, NUMBERS(double beta1, double beta2, double eps, double weight_decay, double momentum_decay, long decoupled),
     ALWAYS, (
    T shrink = decoupled ? 1 - lr * weight_decay : 1, decay = decoupled ? 0 : weight_decay;
    double mu = beta1 * (1 - 0.5 * pow(0.96, step * momentum_decay));
    double next = beta1 * (1 - 0.5 * pow(0.96, (step + 1) * momentum_decay));
    T along = lr * (1 - mu) / (1 - product), ahead = lr * next / (1 - product * next), correction = 1 - pow(beta2, step);
    T rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2;
), (
    T mk = m[k] + (gk - m[k]) * rest1, vk = v[k] * keep2 + rest2 * gk * gk;
    m[k] = mk;
    v[k] = vk;
    T root = SQRT(vk / correction) + little;
    p[k] = pk - along * gk / root - ahead * mk / root;
))

RULE(radam, NUMBERS(double beta1, double beta2, double eps, double weight_decay, long decoupled), ALWAYS, (
    T shrink = decoupled ? 1 - lr * weight_decay : 1, decay = decoupled ? 0 : weight_decay;
    double correction2 = 1 - pow(beta2, step), longest = 2 / (1 - beta2) - 1;
    double length = longest - 2 * step * pow(beta2, step) / correction2;
    T ratio = length > 5 ? sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) : 0;
    T above = sqrt(correction2), correction1 = 1 - pow(beta1, step), rate = lr;
    T rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2;
), (
    T mk = m[k] + (gk - m[k]) * rest1, vk = v[k] * keep2 + rest2 * gk * gk;
    m[k] = mk;
    v[k] = vk;
    T change = mk / correction1 * rate;
    if (ratio != 0) change = change * (above / (SQRT(vk) + little)) * ratio;
    p[k] = pk - change;
))
