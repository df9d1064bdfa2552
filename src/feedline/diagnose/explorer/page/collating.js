// What collate/padding.py and collate/packing_rows.py make of the lengths of a batch's samples.
import { uniform, randomWords } from "./words.js";

// Lengths of made sentences: many short, few long; a function of the key, the same in Python (explorer/costs.py).
export function madeLengths(count, longest, key) {
  return randomWords(key, 0, count).map(word => { const u = uniform(word); return 1 + Math.floor((longest - 1) * u * u * u); });
}

export function paddedTo(lengths, multiple) { return Math.ceil(Math.max(...lengths) / multiple) * multiple; }

export function paddingOf(batches, lengths, multiple) {  // over all batches, as loader.stats() counts it
  let places = 0, filled = 0;
  for (const batch of batches) {
    const own = batch.map(index => lengths[index]);
    places += own.length * paddedTo(own, multiple);
    filled += own.reduce((one, other) => one + other, 0);
  }
  return { places, filled, share: places ? (places - filled) / places : 0 };
}

// Where each sequence goes: the longest first, each into the fullest row with room; longer ones go on in further rows.
export function pack(sizes, length) {
  const wanted = [];
  sizes.forEach((size, sample) => { for (let begin = 0; begin < size; begin += length) wanted.push([Math.min(length, size - begin), sample, begin]); });
  wanted.sort((one, other) => other[0] - one[0]);
  const spaces = [], pieces = [];  // (free places, row), the fullest row first
  let rows = 0;
  for (const [size, sample, begin] of wanted) {
    const at = spaces.findIndex(space => space[0] >= size);
    let room = length, row = rows;
    if (at >= 0) [room, row] = spaces.splice(at, 1)[0]; else rows++;
    pieces.push({ sample, begin, size, row, start: length - room });
    if (room > size) {
      const left = room - size;
      let into = spaces.findIndex(space => space[0] > left || (space[0] === left && space[1] > row));
      if (into < 0) into = spaces.length;
      spaces.splice(into, 0, [left, row]);
    }
  }
  return { pieces, rows };
}

// Images of different sizes with up to four boxes each; as above.
export function madeImages(count, key) {
  return randomWords(key, 0, 3 * count).map(uniform).reduce((found, u, at) => {
    if (at % 3 === 0) found.push({ height: 32 + Math.floor(65 * u) });
    else if (at % 3 === 1) found[found.length - 1].width = 32 + Math.floor(65 * u);
    else found[found.length - 1].boxes = Math.floor(5 * u);
    return found;
  }, []);
}

export function detected(images) {  // the shape of the stacked images
  return [images.length, 3, Math.max(...images.map(one => one.height)), Math.max(...images.map(one => one.width))];
}
