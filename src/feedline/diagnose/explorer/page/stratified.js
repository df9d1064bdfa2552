// order/stratified.py and order/class_shares.py: batches in which every class is present.
import { orderKey, randomWords } from "./words.js";
import { shuffled, shuffledCopy } from "./orders.js";

const INSIDE = 0, TURN = 1, LONG_TURN = 2, REST = 3;
const sum = items => items.reduce((one, other) => one + other, 0);
function before(items) { let total = 0; return items.map(item => { total += item; return total - item; }); }

function fewest(sizes, size) {
  let low = 1, high = Math.max(...sizes);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (middle * size >= sum(sizes.map(one => Math.max(one, middle)))) high = middle; else low = middle + 1;
  }
  return low;
}

function cut(sizes, batches, room) {
  const over = sizes.map(one => Math.max(0, one - batches)), left = room - batches * sizes.length, all = Math.max(1, sum(over));
  const totals = over.map(one => batches + Math.floor(one * left / all));
  const byRemainder = over.map((one, at) => [one * left % all, at]).sort((one, other) => other[0] - one[0] || one[1] - other[1]);
  for (const [, at] of byRemainder.slice(0, room - sum(totals))) totals[at] += 1;
  return totals;
}

export function sharesOf(share, sizes, size, dropLast) {
  const total = sum(sizes), count = sizes.length;
  if (share === "equal") {
    const batches = dropLast ? Math.floor(total / size) : Math.ceil(total / size), least = Math.floor(size / count), over = size % count;
    const beforeBatch = number => sizes.map((_, which) => number * least + Math.floor((number * over - which + count - 1) / count));
    return { batches, totals: beforeBatch(batches), size, rest: 0, restBefore: () => 0, before: beforeBatch, share };
  }
  let batches = fewest(sizes, size), totals = sizes.map(one => Math.max(one, batches));
  if (dropLast && sum(totals) < batches * size) { batches -= 1; totals = cut(sizes, batches, batches * size); }
  const shares = { batches, totals, size, share };
  if (share === "at_least_one") {
    const starts = [0, ...totals.map(one => one - batches)];
    for (let i = 1; i < starts.length; i++) starts[i] += starts[i - 1];
    shares.rest = starts[count];
    shares.before = number => totals.map(() => number);
    const least = Math.floor(shares.rest / Math.max(1, batches)), extras = shares.rest % Math.max(1, batches);
    shares.restBefore = number => number * least + Math.min(number, extras);
    shares.ofRest = place => {
      let which = count - 1;
      while (starts[which] > place) which--;
      return [which, batches + place - starts[which]];
    };
    return shares;
  }
  const many = Math.max(1, batches), least = totals.map(one => Math.floor(one / many)), extras = totals.map(one => one % many);
  const first = before(extras).map(one => one % many);
  shares.rest = 0;
  shares.restBefore = () => 0;
  shares.before = number => totals.map((_, which) => {
    const begin = first[which], end = begin + extras[which];
    return number * least[which] + Math.max(0, Math.min(number, end) - begin) + Math.max(0, Math.min(number, end - batches));
  });
  return shares;
}

function mend(shares, which, size, earlier, later, turn) {
  const each = Array.from({ length: shares.batches + 1 }, (_, number) => shares.before(number)[which]);
  let most = 0;
  for (let i = 1; i < each.length; i++) most = Math.max(most, each[i] - each[i - 1]);
  const place = turn * size % each[shares.batches];
  let batch = each.findIndex(one => one > place);
  if (batch < 0) batch = each.length;
  const first = each[batch] - place, last = place - each[batch - 1];
  if (!last || 2 * most - 1 > size) return;
  const held = new Set(earlier.slice(size - last));
  const again = [], free = [];
  for (let i = 0; i < Math.min(first, size); i++) if (held.has(later[i])) again.push(i);
  for (let i = first; i < Math.min(first + last, size); i++) if (!held.has(later[i])) free.push(i);
  again.forEach((one, number) => { const other = free[number], kept = later[one]; later[one] = later[other]; later[other] = kept; });
}

// All batches of an epoch; codes has the class of each sample.
export function stratifiedBatches(codes, classes, size, share, dropLast, seed, epoch) {
  const own = Array.from({ length: classes }, () => []);
  codes.forEach((code, index) => own[code].push(index));
  const sizes = own.map(one => one.length), shares = sharesOf(share, sizes, size, dropLast);
  const members = own.map((each, number) => {
    const many = each.length, wanted = shares.totals[number], goesOn = share === "equal" && wanted < many;
    const key = goesOn ? [seed, LONG_TURN] : [seed, epoch, TURN], begin = goesOn ? epoch * wanted : 0;
    const start = Math.max(0, Math.floor(begin / many) - 1), stop = Math.ceil((begin + wanted) / many), shuffles = [];
    for (let turn = start; turn < stop; turn++) shuffles.push(shuffledCopy(each, orderKey(...key, number, turn)));
    if (share === "equal") for (let i = 1; i < shuffles.length; i++) mend(shares, number, many, shuffles[i - 1], shuffles[i], start + i);
    const first = begin - start * many;
    return shuffles.flat().slice(first, first + wanted);
  });
  const rest = shuffled(shares.rest, orderKey(seed, epoch, REST)).slice(0, shares.rest), inside = orderKey(seed, epoch, INSIDE);
  return Array.from({ length: shares.batches }, (_, number) => {
    const from = shares.before(number), to = shares.before(number + 1);
    const batch = members.flatMap((each, which) => each.slice(from[which], to[which]));
    for (const place of rest.slice(shares.restBefore(number), shares.restBefore(number + 1))) {
      const [which, item] = shares.ofRest(place);
      batch.push(members[which][item]);
    }
    const words = randomWords(inside, number * size, number * size + batch.length);
    return batch.map((index, at) => [words[at], index]).sort((one, other) => one[0] < other[0] ? -1 : 1).map(each => each[1]);
  });
}
