import sys, time, traceback, os
sys.path[:0]=['benchmarks']
import flambeau as torch, gpu
from flambeau.backends.cuda import memory
def info(f):
    c=f._compiled
    return c.reasons[:3], [(p.program.refused,p.program.graph and p.program.graph.size,len(p.program.ops),len(p.program.moving),p.pause) for q in c.plans.values() for p in q], len(c.replays)
def bench(f, n):
    for _ in range(3): f()
    torch.cuda.synchronize(); best=1e9
    for _ in range(4):
        t=time.perf_counter()
        for _ in range(n): f()
        h=time.perf_counter()-t
        torch.cuda.synchronize(); best=min(best,(time.perf_counter()-t)/n); host=h/n
    return f"{best*1e6:.1f} us, host {host*1e6:.1f} us"
rows = {"mnist":(gpu.mnist,50,200),"nano":(lambda t: gpu.gpt(t,6,384,6,64,256,65),50,30),"gpt2":(lambda t: gpu.gpt(t,12,768,12,16,1024,50257),50,8)}
for name in sys.argv[1:]:
    make,steps,n=rows[name]
    try:
        a=make(torch); t=time.perf_counter(); la=[a().item() for _ in range(steps)]; te=time.perf_counter()-t
        ea=bench(a,n); ma=memory.of(0).most_reserved/2**30; del a; torch.cuda.empty_cache(); memory.of(0).reset_peaks()
        b=torch.compile(make(torch)); lb=[]
        t=time.perf_counter()
        for i in range(steps):
            t1=time.perf_counter(); lb.append(b().item())
            if i<4: print("   call",i,f"{time.perf_counter()-t1:.3f}s")
        print(name, "max diff", max([abs(u-v) for u,v in zip(la,lb)]), la[:2], lb[:2], la[-1], lb[-1])
        print(name, "eager",ea,f"{ma:.2f} GiB", "| compiled",bench(b,n), f"{memory.of(0).most_reserved/2**30:.2f} GiB", info(b))
        p=next(iter(b._compiled.plans.values()))[0].program
        if p.graph:
            p.graph.launch(); torch.cuda.synchronize(); t=time.perf_counter()
            for _ in range(n): p.graph.launch()
            torch.cuda.synchronize(); print(name,"bare graph launch", (time.perf_counter()-t)/n*1e6,"us")
        del b,p; torch.cuda.empty_cache()
    except Exception: traceback.print_exc()
