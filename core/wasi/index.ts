export { ComponentExit, createWasiPreview2 } from './preview2.ts'
export type { GuestClock, Interfaces, OutputSink, WasiPreview2Options } from './preview2.ts'
