// Standard normals from a 128-bit key: AES-128 in counter mode (NIST SP 800-38A), then the Box-Muller transform.
//
// Numbers come in tiles of 1024, and tile t is a function of the key and t alone: threads share out tiles, and their
// number does not change the numbers. All arithmetic is IEEE single precision in the order that is written (compiled
// with -ffp-contract=off), so the same key gives the same bits on every machine.
//
// Two things make it fast beside vectors: a number goes from the registers that it was computed in straight into the
// sum that it is for, and the memory of the next tile is fetched line by line while this one is computed: a processor
// waits for few lines at a time, so that many at once would have it wait for them.

#include <cstdint>
#include <cstring>

// A Block is as many blocks of the cipher as the processor encrypts with one instruction.
#if defined(__VAES__) && defined(__AVX512F__)
#include <immintrin.h>
typedef __m512i Block;
static inline Block repeated(const uint32_t* words) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)words));
}
static inline Block counters(uint64_t first, uint64_t stream) {
    const int64_t a = (int64_t)first, b = (int64_t)stream;
    return _mm512_set_epi64(b, a + 3, b, a + 2, b, a + 1, b, a);
}
static inline void store(uint32_t* to, Block block) { _mm512_storeu_si512(to, block); }
static inline Block exclusive_or(Block a, Block b) { return _mm512_xor_si512(a, b); }
static inline Block aes_round(Block state, Block key) { return _mm512_aesenc_epi128(state, key); }
static inline Block aes_last_round(Block state, Block key) { return _mm512_aesenclast_epi128(state, key); }
#elif defined(__VAES__) && defined(__AVX2__)
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
// A tile is encrypted in 16 steps and transformed in 16: with each of the former one of the 64 lines of the next tile is
// fetched, with each of the latter, which take longer, three.
constexpr int LINE = 16, PART = PAIRS / 16, LINES_A_PART = 3;
// Nearer than this to 0 or 2^32 a word has too few bits for a radius, and 96 more are drawn: for one pair in 2^15. Of the
// others no radius is more than 2^-16 from the exact one with the same bits.
constexpr uint32_t RARE = 1u << 16;
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

// sqrt(-2 log u) of the uniform number u that the upper 31 bits of a word are. Of the mantissa m, which lies around 1, the
// logarithm is 2 atanh(s) = 2 (s + s^3 / 3 + ...) with s = (m - 1) / (m + 1); four terms leave out less than 3e-9 of it.
inline float radius_of(uint32_t word) {
    const float u = ((float)(int32_t)(word >> 1) + 0.5f) * 0x1p-31f;
    const int32_t bits = bits_of(u), exponent = (bits - 0x3f3504f3) >> 23;
    const float m = of_bits(bits - (exponent << 23)), s = (m - 1.0f) / (m + 1.0f), square = s * s;
    float p = fma(square, -5.9161997e-1f, -7.9977500e-1f);
    p = fma(square, p, -1.3333337e0f);
    return __builtin_sqrtf(fma((float)exponent, -1.3862944f, fma(s * square, p, -4.0f * s)));
}

// The radius of a rare pair, from 127 bits: the uniform number is right to its last digit near 0, and 1 - u is near 1.
float rare_radius(const Key& key, uint64_t pair, uint32_t word) {
    uint32_t more[4 * AT_ONCE];
    encrypt(key, pair * AT_ONCE, 1, more);
    const double rest = ((double)more[0] + ((double)more[1] + ((double)more[2] + 0.5) * 0x1p-32) * 0x1p-32) * 0x1p-32;
    if (word < RARE) return (float)__builtin_sqrt(-2.0 * __builtin_log(((double)(word >> 1) + rest) * 0x1p-31));
    const double left = ((double)(0x7fffffff - (word >> 1)) + (1.0 - rest)) * 0x1p-31;
    return (float)__builtin_sqrt(-2.0 * __builtin_log1p(-left));
}

struct Pair {
    float first, second;
};

inline Pair pair_of(float radius, uint32_t turn) {
    // The angle: polynomials within 45 degrees of an axis, which two bits pick.
    const float angle = (float)(int32_t)(turn << 2) * EIGHTH, square = angle * angle;
    float sine = fma(square, -1.9515295891e-4f, 8.3321608736e-3f);
    sine = fma(square, sine, -1.6666654611e-1f) * square;
    sine = fma(sine, angle, angle);
    float cosine = fma(square, 2.4433157118e-5f, -1.3887316255e-3f);
    cosine = fma(square, cosine, 4.1666645683e-2f);
    cosine = fma(square * square, cosine, fma(square, -0.5f, 1.0f));
    const bool turned = turn & 0x40000000u;
    const float x = turned ? -sine : cosine, y = turned ? cosine : sine;
    const float length = (int32_t)turn < 0 ? -radius : radius;
    return {length * x, length * y};
}

// Fill `numbers` with the tile at `index`, of these words, with the radii of rare pairs put right.
void fill(const Key& key, uint64_t index, const uint32_t* words, float* numbers) {
    const auto keep = [=](int i, Pair pair) {
        numbers[i] = pair.first;
        numbers[PAIRS + i] = pair.second;
    };
#pragma GCC ivdep
    for (int i = 0; i < PAIRS; i++) keep(i, pair_of(radius_of(words[i]), words[PAIRS + i]));
    for (int i = 0; i < PAIRS; i++)
        if (words[i] + RARE < 2 * RARE) keep(i, pair_of(rare_radius(key, index * PAIRS + i, words[i]), words[PAIRS + i]));
}

// The upper half of a float, as torch has it.
struct Bfloat16 {
    uint16_t bits;
};

inline float read(const float* from, int64_t i) { return from[i]; }
inline float read(const Bfloat16* from, int64_t i) { return of_bits((int32_t)((uint32_t)from[i].bits << 16)); }

// A float to the nearest bfloat16, ties to even.
inline uint32_t rounded(float value) {
    const uint32_t bits = (uint32_t)bits_of(value);
    return value != value ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// What a sum says of an element, to be added up over a tile.
constexpr uint32_t SAME = 1, MEANT = 1u << 16;

// Write a sum with noise, given without noise too. Of halves, say whether it was to differ, and does not.
inline uint32_t write(float* to, int64_t i, float, float noisy) {
    to[i] = noisy;
    return 0;
}
inline uint32_t write(Bfloat16* to, int64_t i, float total, float noisy) {
    const uint32_t with = rounded(noisy), without = rounded(total);
    to[i].bits = (uint16_t)with;
    const bool meant = noisy != total, same = of_bits((int32_t)(with << 16)) == of_bits((int32_t)(without << 16));
    return (meant ? MEANT : 0) + (meant & same ? SAME : 0);
}

// Call `use(i, n)` with every index below `count` and its number; it reads `from` and writes `to` at that index. Its
// answers are added up: those of SAME in the lower 32 bits, those of MEANT in the upper ones.
//
// Tiles are shared out among the threads of the OpenMP runtime that torch uses too: threads of another one would have to
// share the cores with torch's, which go on spinning for a while when their work is done.
template <class Use, class To, class... From>
uint64_t each_number(const uint8_t* key_bytes, int threads, int64_t count, Use use, To* to, const From*... from) {
    const Key key = expanded(key_bytes);
    const int64_t tiles = (count + TILE - 1) / TILE;
    uint64_t said = 0;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static) reduction(+ : said)
    for (int64_t tile = 0; tile < tiles; tile++) {
        alignas(64) uint32_t words[TILE];
        const int64_t start = tile * TILE;
        int64_t next = start + TILE;
        const auto fetch = [&](int lines) {
            for (const int64_t end = next + lines * LINE; next < end && next < count; next += LINE) {
                (__builtin_prefetch(from + next), ...);
                __builtin_prefetch(to + next, 1);
            }
        };
        for (int word = 0; word < TILE; word += 4 * AT_ONCE) {
            fetch(1);
            encrypt(key, (uint64_t)(start + word) / 4, 0, words + word);
        }
        uint32_t least = 0xffffffffu, found = 0;
        for (int i = 0; i < PAIRS; i++) least = words[i] + RARE < least ? words[i] + RARE : least;
        if (least >= 2 * RARE && start + TILE <= count) {
            for (int part = 0; part < PAIRS; part += PART) {
                fetch(LINES_A_PART);
#pragma GCC ivdep
                for (int i = part; i < part + PART; i++) {
                    const Pair pair = pair_of(radius_of(words[i]), words[PAIRS + i]);
                    found += use(start + i, pair.first);
                    found += use(start + PAIRS + i, pair.second);
                }
            }
        } else {
            float numbers[TILE];
            fill(key, (uint64_t)tile, words, numbers);
            for (int64_t i = start; i < count && i < start + TILE; i++) found += use(i, numbers[i - start]);
        }
        said += (uint64_t)(found / MEANT) << 32 | found % MEANT;
    }
    return said;
}

template <class T>
uint64_t noisy(
    const uint8_t* key, int threads, int64_t count, float scale, const T* factor, const T* x, const T* y, T* out
) {
    const auto sum = [=](int64_t i, float by, float total, float n) { return write(out, i, total, fma(by, n, total)); };
    const auto by = [=](int64_t i) { return scale * read(factor, i); };
    const auto both = [=](int64_t i) { return read(x, i) + read(y, i); };
    if (factor && y)
        return each_number(
            key, threads, count, [=](int64_t i, float n) { return sum(i, by(i), both(i), n); }, out, factor, x, y);
    if (factor)
        return each_number(
            key, threads, count, [=](int64_t i, float n) { return sum(i, by(i), read(x, i), n); }, out, factor, x);
    if (y)
        return each_number(
            key, threads, count, [=](int64_t i, float n) { return sum(i, scale, both(i), n); }, out, x, y);
    return each_number(key, threads, count, [=](int64_t i, float n) { return sum(i, scale, read(x, i), n); }, out, x);
}

}  // namespace

extern "C" {

// The words of the cipher: blocks of 16 bytes from the counter (first, stream) on.
void resperturb_words(const uint8_t* key, uint64_t first, uint64_t stream, uint32_t* words) {
    encrypt(expanded(key), first, stream, words);
}

// out = n
void resperturb_fill(const uint8_t* key, int threads, int64_t count, float* out) {
    each_number(key, threads, count, [=](int64_t i, float n) { return write(out, i, 0.0f, n); }, out);
}

// out = x + y + scale factor n, without y or factor if it is null; out may be any of the others
uint64_t resperturb_noisy_float(
    const uint8_t* key,
    int threads,
    int64_t count,
    float scale,
    const float* factor,
    const float* x,
    const float* y,
    float* out
) {
    return noisy(key, threads, count, scale, factor, x, y, out);
}

uint64_t resperturb_noisy_bfloat16(
    const uint8_t* key,
    int threads,
    int64_t count,
    float scale,
    const Bfloat16* factor,
    const Bfloat16* x,
    const Bfloat16* y,
    Bfloat16* out
) {
    return noisy(key, threads, count, scale, factor, x, y, out);
}

}  // extern "C"
