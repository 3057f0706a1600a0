export { ComponentExit, createWasiPreview2 } from './preview2.ts'
export type { GuestClock, Interfaces, OutputSink, WasiOptions } from './preview2.ts'
