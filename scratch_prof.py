import sys, time, collections
sys.path[:0]=['benchmarks']
import flambeau as torch, gpu
from flambeau.backends.cuda import graphs, memory
from flambeau.backends.cuda.arrays import windows
from flambeau.compiler.run.device_kernels import Pass
rows = {"mnist":gpu.mnist,"nano":lambda t: gpu.gpt(t,6,384,6,64,256,65),"gpt2":lambda t: gpu.gpt(t,12,768,12,16,1024,50257)}
for name in sys.argv[1:]:
    b=torch.compile(rows[name](torch))
    for i in range(5):
        t1=time.perf_counter(); l=b().item(); print("call",i,f"{time.perf_counter()-t1:.3f}",l)
    plan=next(iter(b._compiled.plans.values()))[0]; p=plan.program
    print(name,"refused",p.refused,"nodes",p.graph.size,f"peak {memory.of(0).most_reserved/2**30:.2f} GiB now {memory.of(0).reserved/2**30:.2f}")
    # host parts
    torch.cuda.synchronize()
    def t(f,n=20):
        torch.cuda.synchronize(); s=time.perf_counter()
        for _ in range(n): f(); 
        e=time.perf_counter()-s; torch.cuda.synchronize(); return e/n*1e6
    print("again us",t(p._again), "launch host us", min(t(p.graph.launch,3) for _ in range(3)))
    seen={}; tot=collections.Counter(); cnt=collections.Counter()
    for i,op in enumerate(p.ops):
        if p.live[i]: continue
        key=(op.kernel,str([ (v.shape,v.dtype.char,v.contiguous) for v in op.reads])[:90])
        if key not in seen:
            blocks={v.storage.id: windows.storage(v.storage.nbytes) for v in (*op.reads,*op.writes) if v.storage.id not in p.place}
            pool=graphs.Pool(); k=10
            outs=[o.storage.id for o in op.outs if o.storage.id not in p.place]
            with graphs.Capture(pool) as cap:
                for _ in range(k):
                    for o in outs: blocks.pop(o,None)
                    w=Pass(p.place,p._graph_table(),p.numbers,blocks); w.call(op)
            g=cap.graph; g.launch(); torch.cuda.synchronize()
            best=1e9
            for _ in range(3):
                s=time.perf_counter(); g.launch(); torch.cuda.synchronize(); best=min(best,time.perf_counter()-s)
            seen[key]=(best-8e-6)/k*1e6, g.size/k
        tot[key]+=seen[key][0]; cnt[key]+=1
    by=collections.Counter()
    for key,v in tot.items(): by[key[0]]+=v
    print(name,"sum us",sum(tot.values()))
    for kk,v in by.most_common(14): print(f"  {v:9.1f} {kk}")
    for key,v in tot.most_common(26): print(f"  {v:9.1f} = {cnt[key]} x {seen[key][0]:8.1f} ({seen[key][1]} nodes) {key[0]} {key[1]}")
    del b,plan,p; torch.cuda.empty_cache()
