// A real language model (llama.cpp, by node-llama-cpp) behind OpenAI's chat
// completions. It is a peer for the tests and no part of the program.
//
//   node server.mjs --modules FOLDER --model FILE.gguf [--port N] [--pace MS] [--most N]
//
// FOLDER has node_modules. MS is the least time between two tokens: a model as small
// as the tests' is done before anybody can stop it. An answer whose limit nobody says
// has the most tokens of --most, 0 is what fits. What happens is told on standard
// output as it happens, a JSON object a line.
import {randomUUID} from "node:crypto";
import http from "node:http";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";
import {parseArgs} from "node:util";

const {values: {modules, model: path, ...numbers}} = parseArgs({options: {
  modules: {type: "string"},
  model: {type: "string"},
  port: {type: "string", default: "0"},
  pace: {type: "string", default: "0"},
  most: {type: "string", default: "0"},
}});
const port = Number(numbers.port), pace = Number(numbers.pace), limit = Number(numbers.most);
const {getLlama} = await import(pathToFileURL(join(resolve(modules), "node_modules/node-llama-cpp/dist/index.js")));

const slots = 4; // answers at once; more wait
const window = 1024; // tokens of a prompt and its answer

// Two threads would spin for each other on a busy machine.
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: "error", maxThreads: 1});
const model = await llama.loadModel({modelPath: path});
const context = await model.createContext({contextSize: window, threads: 1, sequences: slots});

const tell = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A Slot is a place among those who are answered at once.
let free = slots;
const waiting = [];
async function slot() {
  if (free > 0) free--;
  else await new Promise((turn) => waiting.push(turn));
  return context.getSequence();
}
async function leave(sequence) {
  await sequence.dispose();
  if (waiting.length > 0) waiting.shift()();
  else free++;
}

class Refusal extends Error {
  constructor(status, message, type, code = null) {
    super(message);
    this.status = status;
    this.body = {error: {message, type, param: null, code}};
  }
}

function json(res, status, body) {
  res.writeHead(status, {"content-type": "application/json"});
  res.end(JSON.stringify(body));
}

async function read(req) {
  let text = "";
  for await (const part of req.setEncoding("utf8")) text += part;
  try {
    return JSON.parse(text);
  } catch {
    throw new Refusal(400, "The body is no JSON.", "invalid_request_error");
  }
}

let calls = 0;

async function complete(req, res) {
  const ask = await read(req);
  const n = ++calls;
  const id = `chatcmpl-${randomUUID()}`;
  const said = ask.messages.map((m) => m.content);
  tell({event: "call", n, question: said.at(-1), turns: said.length, threads: context.currentThreads});

  let gone = false;
  let given = "";
  res.on("close", () => {
    gone = !res.writableEnded;
    if (gone) tell({event: "left", n, text: given});
  });
  const prompt = [model.tokens.bos, ...model.tokenize(said.join("\n"), false)];
  const most = Math.min(ask.max_tokens ?? ask.max_completion_tokens ?? (limit || window), window - prompt.length);
  if (most < 1) {
    throw new Refusal(400, `The prompt has ${prompt.length} tokens, and the context is ${window}.`,
      "invalid_request_error", "context_length_exceeded");
  }
  const created = Math.floor(Date.now() / 1000);
  const chunk = (choices, more) => {
    const doc = {id, object: "chat.completion.chunk", created, model: ask.model, choices, ...more};
    res.write(`data: ${JSON.stringify(doc)}\n\n`);
  };
  const delta = (d, reason = null) => chunk([{index: 0, delta: d, finish_reason: reason}]);
  if (ask.stream) {
    res.writeHead(200, {"content-type": "text/event-stream", "cache-control": "no-cache"});
    delta({role: "assistant", content: ""});
  }

  const sequence = await slot();
  let finish = "length";
  const tokens = [];
  try {
    let due = Date.now();
    const sampling = {temperature: ask.temperature ?? 0.8, topP: ask.top_p, seed: ask.seed ?? n, yieldEogToken: true};
    for await (const token of sequence.evaluate(prompt, sampling)) {
      if (gone) return;
      if (model.isEogToken(token)) {
        finish = "stop";
        break;
      }
      tokens.push(token);
      const text = model.detokenize(tokens, false, [prompt.at(-1)]);
      if (!text.endsWith("\ufffd")) { // else a character is not whole yet
        if (ask.stream) delta({content: text.slice(given.length)});
        given = text;
      }
      if (tokens.length >= most) break;
      due += pace;
      await sleep(due - Date.now());
    }
  } finally {
    await leave(sequence);
  }
  if (gone) return;
  const usage = {prompt_tokens: prompt.length, completion_tokens: tokens.length, total_tokens: prompt.length + tokens.length};
  tell({event: "answered", n, text: given, finish, ...usage});
  if (!ask.stream) {
    const message = {role: "assistant", content: given};
    json(res, 200, {id, object: "chat.completion", created, model: ask.model,
      choices: [{index: 0, message, finish_reason: finish}], usage});
    return;
  }
  delta({}, finish);
  if (ask.stream_options?.include_usage) chunk([], {usage});
  res.end("data: [DONE]\n\n");
}

async function serve(req, res) {
  const what = `${req.method} ${req.url}`;
  if (what === "GET /v1/models") {
    json(res, 200, {object: "list", data: [{id: "babbler", object: "model", created: 0, owned_by: "local"}]});
  } else if (what === "POST /v1/chat/completions") {
    await complete(req, res);
  } else {
    throw new Refusal(404, `There is nothing at ${what}.`, "invalid_request_error");
  }
}

const server = http.createServer((req, res) => serve(req, res).catch((err) => {
  tell({event: "failed", error: String(err)});
  if (res.headersSent) res.destroy();
  else json(res, err.status ?? 500, err.body ?? {error: {message: String(err), type: "server_error", param: null, code: null}});
}));
server.listen(port, "127.0.0.1", () => tell({event: "serving", port: server.address().port}));
