// Standard normals from a 128-bit key: AES-128 in counter mode (NIST SP 800-38A), then the Box-Muller transform.
//
// Numbers come in tiles of 1024, and tile t is a function of the key and t alone: threads share out tiles, and their
// number does not change the numbers. All arithmetic is IEEE single precision in the order that is written (compiled
// with -ffp-contract=off), so the same key gives the same bits on every machine.

#include <cstdint>
#include <cstring>

// A Block is as many blocks of the cipher as the processor encrypts with one instruction.
#if defined(__VAES__) && defined(__AVX2__)
#include <immintrin.h>
typedef __m256i Block;
static inline Block repeated(const uint32_t* words) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)words));
}
static inline Block counters(uint64_t first, uint64_t stream) {
    return _mm256_set_epi64x((int64_t)stream, (int64_t)(first + 1), (int64_t)stream, (int64_t)first);
}
static inline void store(uint32_t* to, Block block) { _mm256_storeu_si256((Block*)to, block); }
static inline Block exclusive_or(Block a, Block b) { return _mm256_xor_si256(a, b); }
static inline Block aes_round(Block state, Block key) { return _mm256_aesenc_epi128(state, key); }
static inline Block aes_last_round(Block state, Block key) { return _mm256_aesenclast_epi128(state, key); }
#elif defined(__AES__)
#include <immintrin.h>
typedef __m128i Block;
static inline Block repeated(const uint32_t* words) { return _mm_loadu_si128((const Block*)words); }
static inline Block counters(uint64_t first, uint64_t stream) {
    return _mm_set_epi64x((int64_t)stream, (int64_t)first);
}
static inline void store(uint32_t* to, Block block) { _mm_storeu_si128((Block*)to, block); }
static inline Block exclusive_or(Block a, Block b) { return _mm_xor_si128(a, b); }
static inline Block aes_round(Block state, Block key) { return _mm_aesenc_si128(state, key); }
static inline Block aes_last_round(Block state, Block key) { return _mm_aesenclast_si128(state, key); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_AES)
#include <arm_neon.h>
typedef uint8x16_t Block;
static inline Block repeated(const uint32_t* words) { return vreinterpretq_u8_u32(vld1q_u32(words)); }
static inline Block counters(uint64_t first, uint64_t stream) {
    return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(first), vcreate_u64(stream)));
}
static inline void store(uint32_t* to, Block block) { vst1q_u32(to, vreinterpretq_u32_u8(block)); }
static inline Block exclusive_or(Block a, Block b) { return veorq_u8(a, b); }
static inline Block aes_round(Block state, Block key) {
    return veorq_u8(vaesmcq_u8(vaeseq_u8(state, vdupq_n_u8(0))), key);
}
static inline Block aes_last_round(Block state, Block key) { return veorq_u8(vaeseq_u8(state, vdupq_n_u8(0)), key); }
#else
#error "this processor has no AES instructions that this file knows"
#endif

namespace {

constexpr int PAIRS = 512, TILE = 2 * PAIRS, ROUNDS = 10;
constexpr int WIDTH = sizeof(Block) / 16, AT_ONCE = 16, BLOCKS = AT_ONCE / WIDTH;
// Below this the 31 bits of a radius are too few: 64 more are drawn. That happens to one pair in 2^24.
constexpr uint32_t RARE = 1u << 8;
// An eighth of a turn over 2^31: pi / 4 in single precision, scaled exactly.
constexpr float EIGHTH = 0x1.921fb6p-1f * 0x1p-31f;

struct Key {
    Block rounds[ROUNDS + 1];
};

// What SubBytes does to the bytes of a word: the cipher's last round on four equal columns, under a key of zeros.
uint32_t substituted(uint32_t word) {
    const uint32_t zeros[4] = {0, 0, 0, 0}, columns[4] = {word, word, word, word};
    uint32_t result[4 * WIDTH];
    store(result, aes_last_round(repeated(columns), repeated(zeros)));
    return result[0];
}

Key expanded(const uint8_t* key) {
    uint32_t words[4 * (ROUNDS + 1)];
    std::memcpy(words, key, 16);
    uint32_t constant = 1;
    for (int i = 4; i < 4 * (ROUNDS + 1); i++) {
        uint32_t word = words[i - 1];
        if (i % 4 == 0) {
            word = substituted((word >> 8) | (word << 24)) ^ constant;
            constant = (constant << 1) ^ (constant & 0x80 ? 0x11b : 0);
        }
        words[i] = words[i - 4] ^ word;
    }
    Key result;
    for (int i = 0; i <= ROUNDS; i++) result.rounds[i] = repeated(words + 4 * i);
    return result;
}

// Encrypt AT_ONCE counters from (first, stream) on, which the processor does side by side.
inline void encrypt(const Key& key, uint64_t first, uint64_t stream, uint32_t* words) {
    Block state[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) state[i] = exclusive_or(counters(first + i * WIDTH, stream), key.rounds[0]);
    for (int r = 1; r < ROUNDS; r++)
        for (int i = 0; i < BLOCKS; i++) state[i] = aes_round(state[i], key.rounds[r]);
    for (int i = 0; i < BLOCKS; i++) store(words + 4 * WIDTH * i, aes_last_round(state[i], key.rounds[ROUNDS]));
}

inline float of_bits(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline int32_t bits_of(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// sqrt(-2 log(u)), the logarithm by the polynomial of Cephes, right to two units in the last place.
inline float radius_of(float u) {
    const int32_t bits = bits_of(u), exponent = (bits - 0x3f3504f3) >> 23;
    const float f = of_bits(bits - (exponent << 23)) - 1.0f, e = (float)exponent, square = f * f;
    float p = 7.0376836292e-2f;
    p = fma(p, f, -1.1514610310e-1f);
    p = fma(p, f, 1.1676998740e-1f);
    p = fma(p, f, -1.2420140846e-1f);
    p = fma(p, f, 1.4249322787e-1f);
    p = fma(p, f, -1.6668057665e-1f);
    p = fma(p, f, 2.0000714765e-1f);
    p = fma(p, f, -2.4999993993e-1f);
    p = fma(p, f, 3.3333331174e-1f);
    const float small = fma(e, -2.12194440e-4f, fma(p * f, square, -0.5f * square));
    const float logarithm = fma(e, 0.693359375f, f + small);
    return __builtin_sqrtf(-2.0f * logarithm + 0.0f);
}

// One pair in 2^24 has a radius whose bits begin with so many zeros that 64 more bits decide it: 2^-95 is cut off.
float rare_radius(const Key& key, uint64_t pair, uint32_t word) {
    uint32_t more[4 * AT_ONCE];
    encrypt(key, pair * AT_ONCE, 1, more);
    const double rest = ((double)more[0] + ((double)more[1] + 0.5) * 0x1p-32) * 0x1p-32;
    const double u = ((double)(word >> 1) + rest) * 0x1p-31;
    return (float)__builtin_sqrt(-2.0 * __builtin_log(u));
}

// Fill `numbers` with the tile at `index`.
inline void fill(const Key& key, uint64_t index, float* __restrict numbers) {
    alignas(64) uint32_t words[TILE];
    for (int block = 0; block < TILE / 4; block += AT_ONCE)
        encrypt(key, index * (TILE / 4) + block, 0, words + 4 * block);
    uint32_t least = 0xffffffffu;
    for (int i = 0; i < PAIRS; i++) {
        const uint32_t word = words[i];
        least = word < least ? word : least;
        const float radius = radius_of(((float)(int32_t)(word >> 1) + 0.5f) * 0x1p-31f);
        // The angle: polynomials within 45 degrees of an axis, which two bits pick.
        const int32_t turn = (int32_t)words[PAIRS + i];
        const float angle = (float)(int32_t)((uint32_t)turn << 2) * EIGHTH, square = angle * angle;
        float sine = fma(square, -1.9515295891e-4f, 8.3321608736e-3f);
        sine = fma(square, sine, -1.6666654611e-1f) * square;
        sine = fma(sine, angle, angle);
        float cosine = fma(square, 2.4433157118e-5f, -1.3887316255e-3f);
        cosine = fma(square, cosine, 4.1666645683e-2f);
        cosine = fma(square * square, cosine, fma(square, -0.5f, 1.0f));
        const bool turned = turn & 0x40000000;
        const float x = turned ? -sine : cosine, y = turned ? cosine : sine;
        const float length = turn < 0 ? -radius : radius;
        numbers[i] = length * x;
        numbers[PAIRS + i] = length * y;
    }
    if (least >= RARE) return;
    for (int i = 0; i < PAIRS; i++) {
        if (words[i] >= RARE) continue;
        const float radius = radius_of(((float)(int32_t)(words[i] >> 1) + 0.5f) * 0x1p-31f);
        const float stretch = rare_radius(key, index * PAIRS + i, words[i]) / radius;
        numbers[i] *= stretch;
        numbers[PAIRS + i] *= stretch;
    }
}

// Tiles are shared out among the threads of the OpenMP runtime that torch uses too: threads of another one would have to
// share the cores with torch's, which go on spinning for a while when their work is done.
template <class Use>
void each_tile(const uint8_t* key_bytes, int threads, int64_t count, Use use) {
    const Key key = expanded(key_bytes);
    const int64_t tiles = (count + TILE - 1) / TILE;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t tile = 0; tile < tiles; tile++) {
        alignas(64) float numbers[TILE];
        const int64_t start = tile * TILE;
        fill(key, (uint64_t)tile, numbers);
        use(start, (int)(count - start < TILE ? count - start : TILE), numbers);
    }
}

// Two sides of a sum from an element on; the second may be missing.
struct Sum {
    const float *x, *y;
    Sum(const float* x, const float* y, int64_t start) : x(x + start), y(y ? y + start : nullptr) {}
};

}  // namespace

extern "C" {

// The words of the cipher: blocks of 16 bytes from the counter (first, stream) on.
void resperturb_words(const uint8_t* key, uint64_t first, uint64_t stream, uint32_t* words) {
    encrypt(expanded(key), first, stream, words);
}

// out = n
void resperturb_fill(const uint8_t* key, int threads, int64_t count, float* out) {
    each_tile(key, threads, count, [=](int64_t start, int size, const float* n) {
        std::memcpy(out + start, n, sizeof(float) * size);
    });
}

// out = x + y + scale n, without y if it is null; out may be x or y
void resperturb_add(
    const uint8_t* key, int threads, int64_t count, float scale, const float* x, const float* y, float* out
) {
    each_tile(key, threads, count, [=](int64_t start, int size, const float* __restrict n) {
        const Sum sum(x, y, start);
        float* to = out + start;
        if (sum.y) {
#pragma GCC ivdep
            for (int i = 0; i < size; i++) to[i] = fma(scale, n[i], sum.x[i] + sum.y[i]);
        } else {
#pragma GCC ivdep
            for (int i = 0; i < size; i++) to[i] = fma(scale, n[i], sum.x[i]);
        }
    });
}

// out = x + y + scale factor n, without y if it is null; out may be any of the others
void resperturb_addcmul(
    const uint8_t* key,
    int threads,
    int64_t count,
    float scale,
    const float* factor,
    const float* x,
    const float* y,
    float* out
) {
    each_tile(key, threads, count, [=](int64_t start, int size, const float* __restrict n) {
        const Sum sum(x, y, start);
        float* to = out + start;
        const float* by = factor + start;
        if (sum.y) {
#pragma GCC ivdep
            for (int i = 0; i < size; i++) to[i] = fma(scale * by[i], n[i], sum.x[i] + sum.y[i]);
        } else {
#pragma GCC ivdep
            for (int i = 0; i < size; i++) to[i] = fma(scale * by[i], n[i], sum.x[i]);
        }
    });
}

// out = scale x n
void resperturb_mul(const uint8_t* key, int threads, int64_t count, float scale, const float* x, float* out) {
    each_tile(key, threads, count, [=](int64_t start, int size, const float* __restrict n) {
        float* __restrict to = out + start;
        const float* __restrict by = x + start;
        for (int i = 0; i < size; i++) to[i] = scale * by[i] * n[i];
    });
}

}  // extern "C"
