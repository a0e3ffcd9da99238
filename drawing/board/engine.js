"use strict";
// What the simulated machine does with rows of work, in which each stage is one layer: when each piece of work begins,
// what each rank holds, and who waits for whom. tests/test_board.py holds all of it against run(schedule(rows)).
//
// A row is a list of pieces of work, {stage, kind, mb}. Kinds: F a forward, B a backward, I and W its two halves (for
// the input, for the weights), and SEND_F or SEND_B for a result that is sent later than it is made. A pair that
// overlaps is {both: [forward, backward]}.

const upTo = count => [...Array(count).keys()];

// The rank of each stage: one stage a rank; or two, the second ones in the same order, or in the opposite one.
const PLACES = {
  line: ranks => upTo(ranks),
  ring: ranks => [...upTo(ranks), ...upTo(ranks)],
  v: ranks => [...upTo(ranks), ...upTo(ranks).reverse()],
};

const parts = piece => piece.both ?? [piece];
const name = piece => piece.both ? piece.both.map(name).join("+") : piece.stage + piece.kind + piece.mb;
const isSend = piece => !piece.both && piece.kind.startsWith("SEND");

// Results have names, too: 0F1 is the output of stage 0 for micro-batch 1, 0G1 the gradient of its input.
function needs({stage, kind, mb}, last) {
  if (kind === "F") return stage ? [`${stage - 1}F${mb}`] : [];
  if (kind === "W") return [`${stage}I${mb}`];
  if (kind === "SEND_F") return [`${stage}F${mb}`];
  if (kind === "SEND_B") return [`${stage}G${mb}`];
  return stage < last ? [`${stage}F${mb}`, `${stage + 1}G${mb}`] : [`${stage}F${mb}`];
}
function makes({stage, kind, mb}) {
  if (kind === "F") return [`${stage}F${mb}`];
  if (kind === "B") return [`${stage}G${mb}`];
  return kind === "I" ? [`${stage}G${mb}`, `${stage}I${mb}`] : [];
}

// The message with what a piece of work makes, if another rank reads it.
function messageOf({stage, kind, mb}, rankOf) {
  const back = kind === "B" || kind === "I" || kind === "SEND_B";
  const reader = back ? stage - 1 : stage + 1;
  if (kind === "W" || reader < 0 || reader === rankOf.length || rankOf[reader] === rankOf[stage]) return null;
  return {result: `${stage}${back ? "G" : "F"}${mb}`, from: rankOf[stage], to: rankOf[reader], back, stage, mb};
}
const sendOf = message => ({stage: message.stage, kind: message.back ? "SEND_B" : "SEND_F", mb: message.mb});

// Put sends and receives into rows, as PyTorch does. The ranks take turns, a piece of work each. A result is sent when
// it is made, or where its row says so, and there the receiver begins to receive it. Where no rank can go on, the rows
// come to an end, or to none: then `at` says how far each rank comes.
function withMessages(rows, rankOf, overlapped) {
  const last = rankOf.length - 1, late = new Set(rows.flat().filter(isSend).map(name));
  const at = rows.map(() => 0), there = rows.map(() => new Set()), whole = rows.map(() => []);
  const turn = (row, rank) => {
    const piece = row[at[rank]];
    if (!piece || parts(piece).some(part => needs(part, last).some(result => !there[rank].has(result)))) return false;
    at[rank]++;
    whole[rank].push(...(isSend(piece) ? [] : overlapped ? [piece] : parts(piece)));
    for (const part of parts(piece)) makes(part).forEach(result => there[rank].add(result));
    for (const part of parts(piece)) {
      const message = messageOf(part, rankOf);
      if (!message || !isSend(piece) && late.has(name(sendOf(message)))) continue;
      whole[rank].push({send: message});
      whole[message.to].push({receive: message});
      there[message.to].add(message.result);
    }
    return true;
  };
  while (rows.map(turn).some(Boolean));
  return {whole, at};
}

// A rank: its clock, what it holds, what it has done, and what is on its way from it and to it.
class Rank {
  constructor(row, place, rankOf, prices) {
    Object.assign(this, {row, place, rankOf, prices, last: rankOf.length - 1});
    this.stages = rankOf.filter(rank => rank === place).length;
    this.at = 0;
    this.clock = 0;
    this.held = this.stages * prices.kept;
    this.samples = [];  // of memory, one as each operation begins: {time, held, work: its box, if it is work}
    this.spans = [];  // what counts besides: from which sample on, before which
    this.boxes = [];
    this.sent = [];
    this.received = [];
    this.box = null;  // the last piece of work
    this.brought = 0;  // of how many parts of its next piece it has what they read
    this.awaited = 0;  // how many samples there were when it last waited for something
    this.summed = new Set();  // stages with a gradient
    this.coming = new Map();  // receives that were begun and not waited for, by result
    this.asked = rankOf.map(() => []);  // those that have no message yet, in order, by sender
    this.mail = rankOf.map(() => []);  // messages that nobody has received, in order, by sender
  }

  // Work until there is something to wait for.
  goOn(ranks) {
    while (this.at < this.row.length) {
      const piece = this.row[this.at];
      if (piece.send) this.send(piece.send, ranks[piece.send.to]);
      else if (piece.receive) this.receive(piece.receive);
      else if (!this.work(piece)) return;
      this.at++;
    }
  }

  sample(work = null) {
    this.samples.push({time: this.clock, held: this.held, work});
  }

  does(kind, stage, mb, length) {
    const after = this.after ?? this.box;
    this.box = {kind, stage, mb, rank: this.place, begin: this.clock, end: this.clock + length, after};
    this.after = null;
    this.sample(this.box);
    this.boxes.push(this.box);
    this.clock += length;
  }

  // A send is on its way while the rank goes on; one comes after the other.
  send(message, receiver) {
    this.sample();
    this.held -= this.prices.activation;
    const before = this.sent.at(-1), waits = before && before.end > this.clock;
    const begin = waits ? before.end : this.clock;
    const after = waits ? before : this.box;
    const sent = {...message, issued: this.clock, begin, end: begin + this.prices.send, after};
    this.sent.push(sent);
    this.spans.push({first: this.samples.length, until: sent.end});
    receiver.mail[this.place].push(sent);
  }

  receive(message) {
    this.sample();
    const call = {issued: this.clock, after: this.box, message: null};
    this.coming.set(message.result, call);
    this.asked[message.from].push(call);
  }

  // What it could receive next: that for which message and receive are both there first; then the earlier message.
  next() {
    let best = null;
    for (const [sender, [message]] of this.mail.entries()) {
      const [call] = this.asked[sender];
      if (!message || !call) continue;
      const ready = Math.max(call.issued, message.end);
      if (best && (best.ready < ready || best.ready === ready && best.message.end <= message.end)) continue;
      best = {rank: this, sender, call, message, ready};
    }
    if (best) best.end = Math.max(best.ready, this.received.at(-1)?.end ?? 0) + this.prices.receive;
    return best;
  }

  take({sender, call, message, end}) {
    this.mail[sender].shift();
    this.asked[sender].shift();
    const before = this.received.at(-1), begin = end - this.prices.receive;
    const after = message.end === begin ? message : before?.end === begin ? before : call.after;
    Object.assign(call, {message, begin, end, after});
    this.received.push(call);
  }

  // Wait for a result of another rank. Returns false if it is not known when it comes.
  wait(result) {
    const call = this.coming.get(result);
    if (!call) return true;
    if (!call.message) return false;
    this.coming.delete(result);
    if (call.end > this.clock) {
      this.clock = call.end;
      this.after = call;
    }
    this.awaited = this.samples.length;
    this.spans.push({arrival: call.message.end, stop: this.samples.length});
    this.held += this.prices.activation;
    return true;
  }

  // Bring what a piece of work reads: the training data, something received, or the gradient of the loss.
  bring({stage, kind, mb}) {
    if (kind === "F" && !stage) this.held += this.prices.activation;
    else if (kind === "F") return this.wait(`${stage - 1}F${mb}`);
    else if (kind === "W") return true;
    else if (stage < this.last) return this.wait(`${stage + 1}G${mb}`);
    else this.does("LOSS", stage, mb, this.prices.LOSS);
    return true;
  }

  // Two pieces that overlap wait for what both read.
  work(piece) {
    const all = parts(piece);
    while (this.brought < all.length) {
      if (!this.bring(all[this.brought])) return false;
      this.brought++;
    }
    this.brought = 0;
    for (const part of all) this.step(part, piece.both);
    return true;
  }

  step({stage, kind, mb}, pair) {
    const {activation, grad} = this.prices;
    const length = this.prices[kind];
    this.does(kind, stage, mb, pair && kind !== "F" ? length - this.savedBeside(length, mb) : length);
    if (kind === "F") this.held += activation;
    if (kind === "B" || kind === "W") {
      this.held -= 2 * activation;
      if (!this.summed.has(stage)) this.held += grad;
      this.summed.add(stage);
    }
    if ((kind === "B" || kind === "I") && stage) this.held += activation;
  }

  // What a backward saves beside the forwards right before it, since which the rank has waited for nothing.
  savedBeside(length, mb) {
    let forwards = 0;
    for (const {work} of this.samples.slice(this.awaited).reverse()) {
      if (!work || work.kind === "LOSS") continue;
      if (work.kind !== "F" || work.mb === mb) break;
      forwards += work.end - work.begin;
    }
    return this.prices.overlapped * Math.min(forwards, length);
  }

  // What it holds as each operation begins, with what is on its way to it and from it: {time, held}.
  curve() {
    const since = time => this.samples.filter(one => one.time < time).length;
    const spans = this.spans.map(({first, until, arrival, stop}) => [first ?? since(arrival), stop ?? since(until)]);
    const moving = at => spans.filter(([from, to]) => from <= at && at < to).length * this.prices.activation;
    return this.samples.map(({time, held}, at) => ({time, held: held + moving(at)}));
  }

  // How long it computes, sends or receives.
  busy() {
    let sum = 0, reached = 0;
    const spans = [...this.boxes, ...this.sent, ...this.received].sort((one, other) => one.begin - other.begin);
    for (const {begin, end} of spans) {
      sum += Math.max(0, end - Math.max(begin, reached));
      reached = Math.max(reached, end);
    }
    return sum;
  }
}

// What comes of rows. prices: F B I W LOSS update send receive in units of time, kept (a weight and its states), grad
// and activation in elements, and overlapped (0 to 1), what a pair saves of its shorter part.
// `at`: how far each rank comes in its row; `whole`: whether that is to its end, on all ranks.
function evaluate(rows, rankOf, prices) {
  const {whole: full, at} = withMessages(rows, rankOf, prices.overlapped > 0);
  const whole = at.every((count, rank) => count === rows[rank].length);
  const ranks = full.map((row, place) => new Rank(row, place, rankOf, prices));
  ranks.forEach(rank => rank.goOn(ranks));
  for (;;) {  // all ranks wait: what is received first is certain, whatever comes later
    const first = ranks.map(rank => rank.next()).filter(Boolean)
      .reduce((best, one) => best && best.end <= one.end ? best : one, null);
    if (!first) break;
    first.rank.take(first);
    first.rank.goOn(ranks);
  }
  const clocks = ranks.map(rank => rank.clock);
  for (const rank of whole ? ranks : []) {
    if (rank.summed.size === rank.stages) rank.does("UPDATE", -1, -1, rank.stages * prices.update);
  }
  const curves = ranks.map(rank => rank.curve()), boxes = ranks.map(rank => rank.boxes);
  const peaks = curves.map((curve, place) => Math.max(ranks[place].held, ...curve.map(point => point.held)));
  const time = Math.max(...ranks.map(rank => rank.clock));
  const bubble = time ? 1 - ranks.reduce((sum, rank) => sum + rank.busy(), 0) / (ranks.length * time) : 0;
  const messages = ranks.flatMap(rank => rank.sent);
  const arrived = new Map(ranks.flatMap(rank => rank.received).map(call => [call.message.result, call.end]));
  return {whole, at, clocks, boxes, curves, peaks, memory: Math.max(...peaks), time, bubble, messages, arrived};
}

// What no order is faster than, whatever it holds. A rank begins when a micro-batch has come to it, and then has all
// its work to do; if it has one stage, then its last micro-batch goes on to the stages below. And one micro-batch alone
// takes the whole way up and down. A pair saves at most a part of its shorter half, so at most that of any backward.
function bound(rankOf, ranks, batches, halves, prices) {
  const {F, B, I, W, LOSS, update, send, receive, overlapped} = prices, last = rankOf.length - 1;
  const back = halves ? Math.min(B, I + W) : B, input = halves ? Math.min(B, I) : B;
  const both = backward => F + backward - overlapped * Math.min(F, backward);
  const hops = to => upTo(to).filter(stage => rankOf[stage] !== rankOf[stage + 1]).length * (send + receive);
  const down = stages => hops(stages) + (1 - overlapped) * (stages * input + back) + update;
  const up = stage => hops(stage) + stage * F;
  const ofRank = rank => {
    const mine = upTo(last + 1).filter(stage => rankOf[stage] === rank), [first] = mine;
    const begins = up(first) + batches * LOSS * mine.includes(last);
    const work = begins + mine.length * (batches * both(back) + update);
    if (mine.length > 1 || !first) return work;
    return Math.max(work, begins + batches * both(input) + hops(first) - hops(first - 1) + down(first - 1));
  };
  return Math.max(up(last) + F + LOSS + down(last), ...upTo(ranks).map(ofRank));
}
