export { ComponentExit, createWasiPreview2 } from './preview2.ts'
export { createWasiHttp } from './http.ts'
export type { SendHttp } from './http.ts'
export type { GuestClock, Interfaces, OutputSink, WasiOptions } from './preview2.ts'
