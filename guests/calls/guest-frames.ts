/** The stack of a guest at the moment of its failure, with the names of its name section. */

const MAX_FRAMES = 20
const MAX_NAME_CHARACTERS = 200
/** Frames that the engine records; those of the host are left out. */
const RECORDED_FRAMES = 60

/** The form in which the engine writes the place of a frame: `wasm-function[12]:0x1b2`. */
const PLACE = /wasm-function\[(\d+)\]:0x[0-9a-f]+\)?$/

/** Must be called once in each thread that runs guests. */
export function recordGuestFrames(): void {
  Error.stackTraceLimit = RECORDED_FRAMES
}

/**
 * The innermost frames first, such as `core::panicking::panic (function 12)`. Offsets are left out: they are of the
 * module as the runner loads it, with other sections than the file of its author.
 */
export function guestFrames(error: unknown): string[] {
  if (!(error instanceof Error)) return []
  const frames: string[] = []
  const formatBefore = Error.prepareStackTrace
  // The engine formats a stack when it is read first.
  Error.prepareStackTrace = (_, sites) => {
    for (const site of sites) {
      const frame = frames.length < MAX_FRAMES ? describe(site) : undefined
      if (frame !== undefined) frames.push(frame)
    }
    return ''
  }
  try {
    void error.stack
  } finally {
    Error.prepareStackTrace = formatBefore
  }
  return frames
}

function describe(site: NodeJS.CallSite): string | undefined {
  if (site.getFileName()?.startsWith('wasm://') !== true) return undefined
  // oxlint-disable-next-line typescript/no-base-to-string -- V8 writes the place of a frame of WebAssembly only there
  const [, index] = PLACE.exec(String(site)) ?? []
  if (index === undefined) return undefined
  const name = (site.getFunctionName() ?? '').slice(0, MAX_NAME_CHARACTERS).replaceAll(/\p{C}/gu, '')
  const place = `function ${index}`
  return name === '' ? place : `${name.toWellFormed()} (${place})`
}
