"""Matrix products of a warp group, on Hopper alone: `wgmma` (PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions")."""

from ullage.kernels.sass.probe import matrix

matrix("wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16")
matrix("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
matrix("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", registers=True)
matrix("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16")
matrix("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.f16.e5m2.e5m2")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.f16.e4m3.e4m3")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e5m2")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8")
matrix("wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.u8")
matrix("wgmma.mma_async.sync.aligned.m64n256k64.s32.s4.s4")
matrix("wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc")
matrix("wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16")
matrix("wgmma.mma_async.sp.sync.aligned.m64n256k16.f32.tf32.tf32")
matrix("wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3")
matrix("wgmma.mma_async.sp.sync.aligned.m64n256k64.s32.s8.s8")
