// The library's orders: a shuffle (stored below 100,000 indices, else computed where it is read), draws, shares of ranks.
// An order has a length and slice(start, stop).
import { mix, orderKey, randomWords, shuffleInPlace, uniform } from "./words.js";

export const COMPUTED_FROM = 100000;

export function stored(items) { return { length: items.length, slice: (start, stop) => items.slice(start, stop) }; }
export function counting(length) {
  return { length, slice: (start, stop) => Array.from({ length: Math.max(0, Math.min(stop, length) - start) }, (_, i) => start + i) };
}
export function shuffled(length, key) {
  if (length >= COMPUTED_FROM) return permutation(length, key);
  return stored(shuffleInPlace(Array.from({ length }, (_, i) => i), key));
}
export function shuffledCopy(items, key) { return shuffleInPlace(items.slice(), key); }

// order/permutation.py: rounds shift a column by a hash of its row, and a row by a hash of its column.
export function permutation(length, key) {
  let rows = Math.floor(Math.sqrt(Math.max(length - 1, 0)));
  while (rows * rows > length - 1 && rows) rows--;
  while ((rows + 1) * (rows + 1) <= length - 1) rows++;
  rows += 1; rows += rows % 2;
  const columns = Math.max(Math.ceil(length / rows), 1), rounds = length < 4096 ? 32 : 8;
  const keys = Array.from({ length: rounds }, (_, number) => Number(mix(key, number) & 0xFFFFFFFFn));
  const hash = (by, word, size) => {
    let value = Math.imul((by + word) | 0, 0x85EBCA6B);
    value ^= value >>> 16;
    value = Math.imul(value, 0xC2B2AE35) >>> 12;
    return Math.floor(value * size / 1048576);
  };
  const at = place => {
    do {
      let row = Math.floor(place / columns), column = place - row * columns;
      for (let number = 0; number < rounds; number++) {
        if (number % 2) { row += hash(column, keys[number], rows); if (row >= rows) row -= rows; }
        else { column += hash(row, keys[number], columns); if (column >= columns) column -= columns; }
      }
      place = row * columns + column;
    } while (place >= length);
    return place;
  };
  return { length, slice: (start, stop) => counting(length).slice(start, stop).map(at) };
}

export function draws(population, length, key) {
  const many = BigInt(population);
  return { length, slice: (start, stop) => randomWords(key, start, Math.min(stop, length)).map(word => Number(word * many >> 64n)) };
}

export function weightedDraws(weights, length, key) {
  const most = Math.max(...new Set(weights)), sums = [];
  let sum = 0;
  for (const weight of weights) { sum += weight / most; sums.push(sum); }
  const find = wanted => {
    let low = 0, high = sums.length;
    while (low < high) { const middle = (low + high) >> 1; if (sums[middle] > wanted) high = middle; else low = middle + 1; }
    return low;
  };
  return { length, slice: (start, stop) => randomWords(key, start, Math.min(stop, length)).map(word => find(uniform(word) * sum)) };
}

export function randomOrder(length, seed, epoch) { return shuffled(length, orderKey(seed, epoch, 0)); }

// order/ranks.py: rank r takes every R-th index, or every R-th batch.
export function shareLength(length, ranks, rank, uneven) {
  if (uneven === "exact") return Math.max(0, Math.ceil((length - rank) / ranks));
  return uneven === "drop" ? Math.floor(length / ranks) : Math.ceil(length / ranks);
}
export function share(items, ranks, rank, uneven) {
  return Array.from({ length: items.length ? shareLength(items.length, ranks, rank, uneven) : 0 },
    (_, number) => items[(number * ranks + rank) % items.length]);
}

export function batchesOf(indices, size, dropLast) {
  const found = [];
  for (let start = 0; start < indices.length; start += size) found.push(indices.slice(start, start + size));
  if (dropLast && found.length && found[found.length - 1].length < size) found.pop();
  return found;
}
