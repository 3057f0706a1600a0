/** The files of the transpiler. It starts to load them when it is imported, so this module is imported before. */
import type { TranspileComponent } from './protocol.ts'

declare global {
  /** The build replaces the loading of files by this: the frame has no network. */
  var transpilerCore: (name: string) => Promise<WebAssembly.Module>
}

export const given = Promise.withResolvers<TranspileComponent>()
addEventListener('message', ({ data }: MessageEvent<TranspileComponent>) => given.resolve(data))

globalThis.transpilerCore = async (name) => {
  const { files } = await given.promise
  const bytes = files[name]
  if (bytes === undefined) throw new Error(`the transpiler has no file ${name}`)
  return await WebAssembly.compile(bytes)
}
