// order/buckets.py: batches of samples of similar length, of a fixed number of samples or a budget of tokens.
import { orderKey } from "./words.js";
import { shuffled, shuffledCopy } from "./orders.js";

function firstAtLeast(ascending, stop, value, beyond) {
  let low = 0, high = stop;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (beyond ? ascending[middle] > value : ascending[middle] >= value) high = middle; else low = middle + 1;
  }
  return low;
}

function fromTheLongest(ascending, size, tokens, padding, short) {
  const found = [];
  let stop = ascending.length;
  while (stop > 0) {
    const longest = ascending[stop - 1], most = ascending.length + 1;
    const room = tokens === null ? most : Math.max(1, Math.floor(tokens / (longest || 1)));
    const count = Math.min(room, most, size === null ? most : size);
    let similar = stop - firstAtLeast(ascending, stop, (1 - padding) * longest, false);
    if (tokens !== null && longest > tokens) similar = Math.min(similar, stop - firstAtLeast(ascending, stop, tokens, true));
    const whole = Math.max(short ? 0 : 1, Math.floor((similar - short) / count));
    const start = Math.max(0, stop - short - whole * count);
    found.push([start, stop, count]);
    stop = start; short = 0;
  }
  return found;
}

export function cutBuckets(ascending, size, tokens, padding, dropLast) {
  let found = fromTheLongest(ascending, size, tokens, padding, 0);
  const cells = buckets => buckets.reduce((sum, [start, stop]) => sum + (stop - start) * ascending[stop - 1], 0);
  if (!dropLast && found.length && found[0][2] === size) {
    const other = fromTheLongest(ascending, size, tokens, padding, ascending.length % size);
    if (cells(other) < cells(found)) found = other;
  }
  const last = found[found.length - 1];
  if (dropLast && found.length > 1 && last[1] - last[0] < last[2]) {
    found.pop();
    const [, stop, count] = found.pop();
    found.push([0, stop, count]);
  }
  return found;
}

export function bucketBatches(lengths, size, tokens, padding, dropLast, seed, epoch) {
  const byLength = lengths.map((length, at) => [length, at]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  const buckets = cutBuckets(byLength.map(each => each[0]), size, tokens, padding, dropLast), batches = [];
  buckets.forEach(([start, stop, count], number) => {
    const own = shuffledCopy(byLength.slice(start, stop).map(each => each[1]), orderKey(seed, epoch, 1, number));
    for (let at = 0; at < own.length; at += count) if (!dropLast || at + count <= own.length) batches.push(own.slice(at, at + count));
  });
  return shuffled(batches.length, orderKey(seed, epoch, 0)).slice(0, batches.length).map(number => batches[number]);
}
