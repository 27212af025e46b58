// Lines of two texts side by side, by their longest common subsequence. A table of all pairs takes memory
// in proportion to the product of the lengths and time that can be told beforehand: 2,000 lines of PTX
// against 2,000 take some 30 ms. (Searches along the shortest edit script are quick for texts that are
// almost the same, and take seconds for two kernels whose PTX differs throughout.)

const MOST_PAIRS = 4e7;

// [[i, j], ...] in order; i or j is -1 where a line has no partner. null where the texts are too long.
function align(a, b, key = (line) => line) {
  const left = a.map(key), right = b.map(key);
  let begin = 0, endA = left.length, endB = right.length;
  while (begin < endA && begin < endB && left[begin] === right[begin]) ++begin;
  while (endA > begin && endB > begin && left[endA - 1] === right[endB - 1]) --endA, --endB;
  const n = endA - begin, m = endB - begin;
  if (n * m > MOST_PAIRS) return null;
  const pairs = [];
  for (let k = 0; k < begin; ++k) pairs.push([k, k]);
  pairs.push(...middlePairs(left, right, begin, n, m));
  for (let k = 0; endA + k < left.length; ++k) pairs.push([endA + k, endB + k]);
  return pairs;
}
function middlePairs(left, right, begin, n, m) {
  const width = m + 1, longest = new Uint16Array((n + 1) * width);
  for (let i = n - 1; i >= 0; --i) {
    for (let j = m - 1; j >= 0; --j) {
      const same = left[begin + i] === right[begin + j];
      longest[i * width + j] = same ?
          longest[(i + 1) * width + j + 1] + 1 :
          Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pairs = [];
  let i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && left[begin + i] === right[begin + j])
      pairs.push([begin + i++, begin + j++]);
    else if (j >= m || (i < n && longest[(i + 1) * width + j] >= longest[i * width + j + 1]))
      pairs.push([begin + i++, -1]);
    else
      pairs.push([-1, begin + j++]);
  }
  return pairs;
}
// Removed and added lines of one place stand in the same row: [i, j] with different texts.
function pairChanges(pairs) {
  const rows = [];
  for (let k = 0; k < pairs.length;) {
    if (pairs[k][0] >= 0 && pairs[k][1] >= 0) {
      rows.push(pairs[k++]);
      continue;
    }
    const out = [], into = [];
    for (; k < pairs.length && (pairs[k][0] < 0 || pairs[k][1] < 0); ++k) {
      if (pairs[k][1] < 0)
        out.push(pairs[k][0]);
      else
        into.push(pairs[k][1]);
    }
    for (let r = 0; r < Math.max(out.length, into.length); ++r)
      rows.push([r < out.length ? out[r] : -1, r < into.length ? into[r] : -1]);
  }
  return rows;
}
// PTX numbers its registers and labels anew in each kernel: two lines are the same without the numbers.
const ptxKey = (text) =>
    String(text).replace(/%([a-z]+)\d+/g, '%$1').replace(/\$?L__?[\w$]+/g, 'L').trim();
