/** What the page, the frame and the thread of a guest tell each other. */

/** A record with the names of SenML (RFC 8428 section 4.6): resolved, so the time is absolute. */
export type SenmlRecord = {
  n: string
  u?: string
  t: number
  v?: number
  vs?: string
  vb?: boolean
  vd?: string
  s?: number
  ut?: number
}

export type GuestCall = {
  /** Parameters in the order of the function; numbers of 64 bits may be decimal texts. */
  readonly inputs: readonly unknown[]
  readonly stdin: string
}

export type TryRequest = {
  readonly module: ArrayBuffer
  /** The module is a component. */
  readonly tools?: ComponentTools
  readonly functionName: string
  /** Types of its parameters and results: `i32`, `i64`, `f32`, `f64`, or types of components. */
  readonly params: readonly string[]
  readonly results: readonly string[]
  /** Each in an instance of its own. */
  readonly calls: readonly GuestCall[]
  /** The arguments, with argv[0]. */
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** What `skein.read` returns, newest first. */
  readonly records: readonly SenmlRecord[]
}

export type GuestOutcome = {
  readonly results?: unknown
  readonly error?: string
  readonly durationMs: number
}

export type TryReport = {
  readonly outcomes: readonly GuestOutcome[]
  readonly stdout: string
  readonly stderr: string
  /** What the guest asked to publish, in order; nothing is sent. */
  readonly publications: readonly { readonly topic: string; readonly payload: string }[]
  /** Topics from which it read. */
  readonly reads: readonly string[]
  /** What the guest has kept for its next run, in base64. */
  readonly state: readonly { readonly bucket: string; readonly key: string; readonly value: string }[]
  /** The largest memory of an instance. */
  readonly memoryBytes: number
  readonly compileMs: number
}

export type TryAnswer = { readonly report: TryReport } | { readonly failure: string }

/** What a component needs, which the page loads because the frame has no network. */
export type ComponentTools = {
  /** Scripts of threads: one that transpiles, and one that runs what was transpiled. */
  readonly transpile: string
  readonly run: string
  /** The files of the transpiler, by name. */
  readonly files: Readonly<Record<string, ArrayBuffer>>
}

/** The message from the frame to the thread that transpiles. */
export type TranspileComponent = {
  readonly component: ArrayBuffer
  readonly files: ComponentTools['files']
}

export type Transpiled = {
  /** An expression: the function that creates instances. */
  readonly script: string
  readonly cores: readonly (readonly [name: string, bytes: Uint8Array<ArrayBuffer>])[]
}

export type RunComponent = {
  readonly request: Omit<TryRequest, 'module' | 'tools'>
  readonly cores: Transpiled['cores']
}

export const READY = 'ready'
/** A guest that takes longer is ended. */
export const RUN_DEADLINE_MS = 10_000
/** A component of 12 MB takes 1 to 3 s. */
export const TRANSPILE_DEADLINE_MS = 60_000
export const MAX_OUTCOMES_BYTES = 1_048_576
